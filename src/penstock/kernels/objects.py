# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Make an object file of a kernel for a machine, with llvmlite.

An object has two symbols: the kernel as C calls it, and the types of what it returns, as text. Everything else in it is
internal, so objects of kernels that share helpers go into one library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import llvmlite.binding as untyped

from penstock.kernels.reading import KernelCode

_llvm: Any = untyped  # llvmlite has no types
Module: TypeAlias = Any


@dataclass(frozen=True)
class TargetMachine:
    """A kind of machine.

    Args:
        triple: Its name for LLVM.
        cpu: The least processor.
    """

    triple: str
    cpu: str


TARGETS = {
    "v2": TargetMachine("x86_64-unknown-linux-gnu", "x86-64-v2"),
    "v3": TargetMachine("x86_64-unknown-linux-gnu", "x86-64-v3"),
    "v4": TargetMachine("x86_64-unknown-linux-gnu", "x86-64-v4"),
    "arm64": TargetMachine("aarch64-unknown-linux-gnu", "generic"),
    "apple": TargetMachine("arm64-apple-macosx11.0.0", "apple-m1"),
}
"""The machines that kernels compile for, by the level that ends their symbols."""


def emit(code: KernelCode, signature: str, symbol: str, level: str) -> bytes:
    """Return the object file of a kernel for one level. Its symbol and the level make the name in it."""
    lines, machine = _head(level), _machine(level)
    text = re.sub(r"^target (datalayout|triple) = .*$", "", code.module, flags=re.MULTILINE)
    module = _llvm.parse_assembly(lines + text)
    types = [str(argument.type) for argument in module.get_function(code.function).arguments]
    name = f"{symbol}_{level}"
    module.link_in(_llvm.parse_assembly(lines + _entry(code, types, signature, name)))
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration and variable.name != f"{name}_returns":
            variable.linkage = "internal"
    module.verify()
    options = _llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False  # as numba has them
    passes = _llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


def emit_text(symbol: str, text: str, level: str) -> bytes:
    """Return the object file of a text without spaces or quotes."""
    size, content = len(text) + 1, f'c"{text}\\00"'
    module = _llvm.parse_assembly(_head(level) + f"@{symbol} = constant [{size} x i8] {content}")
    return _machine(level).emit_object(module)


def _head(level: str) -> str:
    machine = _machine(level)
    return f'target datalayout = "{machine.target_data}"\ntarget triple = "{TARGETS[level].triple}"\n'


@cache
def _machine(level: str) -> Any:
    _llvm.initialize_all_targets()
    _llvm.initialize_all_asmprinters()
    target = TARGETS[level]
    kind = _llvm.Target.from_triple(target.triple)
    return kind.create_target_machine(cpu=target.cpu, opt=3, reloc="pic", codemodel="default")


def _entry(code: KernelCode, types: list[str], signature: str, name: str) -> str:
    """LLVM's text of the function that C calls: `int name(void *result, const int64_t *slots)`."""
    lines = _Lines()
    passed = ["ptr %result", "ptr %error"]
    wanted = iter(types[2:])
    for argument in signature.split():
        passed += lines.array(argument, wanted) if "[" in argument else [lines.scalar(next(wanted))]
    return "\n".join(
        (
            f'@{name}_returns = constant [{len(code.returns) + 1} x i8] c"{code.returns}\\00"',
            f'declare i32 @"{code.function}"({", ".join(types)})',
            f"define i32 @{name}(ptr %result, ptr %slots) {{",
            "  %error = alloca ptr",
            *lines.written,
            f'  %status = call i32 @"{code.function}"({", ".join(passed)})',
            "  ret i32 %status",
            "}",
        )
    )


class _Lines:
    """Instructions that turn slots into the arguments that numba's functions take."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._slots = 0
        self._names = 0

    def _line(self, instruction: str) -> str:
        self._names += 1
        self.written.append(f"  %v{self._names} = {instruction}")
        return f"%v{self._names}"

    def _slot(self, kind: str) -> str:
        place = self._line(f"getelementptr i64, ptr %slots, i64 {self._slots}")
        self._slots += 1
        return self._line(f"load {kind}, ptr {place}, align 8")  # the low bytes: all machines are little-endian

    def scalar(self, kind: str) -> str:
        """A number."""
        if kind == "i1":
            byte = self._slot("i8")
            return f"i1 {self._line(f'trunc i8 {byte} to i1')}"
        return f"{kind} {self._slot(kind)}"

    def array(self, argument: str, wanted: Iterator[str]) -> list[str]:
        """An array: no owners, number and bytes of its items, address, shape, strides.

        Strides follow from the shape, which lets LLVM reason about them.
        """
        itemsize, axes = int(argument[1]), int(argument[3])
        for _ in range(5 + 2 * axes):
            next(wanted)
        address = self._slot("ptr")
        shape = [self._slot("i64") for _ in range(axes)]
        self._slots += axes
        strides, reach = [str(itemsize)], str(itemsize)
        for length in reversed(shape[1:]):
            reach = self._line(f"mul nsw i64 {reach}, {length}")
            strides.insert(0, reach)
        items = shape[0]
        for length in shape[1:]:
            items = self._line(f"mul nsw i64 {items}, {length}")
        numbers = [f"i64 {each}" for each in (*shape, *strides)]
        return ["ptr null", "ptr null", f"i64 {items}", f"i64 {itemsize}", f"ptr {address}", *numbers]
