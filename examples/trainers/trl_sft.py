"""TRL's `SFTTrainer` on packs, without padding.

    python examples/trainers/trl_sft.py

Lines that differ from a program without penstock have the comment `# penstock`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import datasets
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers_packs import WORDS, llama, texts
from trl import SFTConfig, SFTTrainer

import penstock


class PacksTrainer(SFTTrainer):  # penstock
    """An `SFTTrainer` whose batches come from a loader."""

    def __init__(self, *args: Any, rows: penstock.MapDataset, **kwargs: Any) -> None:  # penstock
        super().__init__(*args, **kwargs)
        self.rows = rows  # penstock

    def get_train_dataloader(self) -> penstock.Loader:  # penstock
        return self.rows.loader(self.args.train_batch_size, output="torch", layout="trl")  # penstock


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of numbers, because `SFTTrainer` wants one."""
    words = Tokenizer(WordLevel({str(i): i for i in range(WORDS)}, unk_token="0"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1", unk_token="0")


def train(out: Path, steps: int = 24) -> PacksTrainer:
    """Train for some steps, and return the trainer."""
    rows = texts().sequences().pack(128, seed=0).shuffle(seed=0)  # penstock
    options = SFTConfig(
        out,
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        padding_free=True,
        max_length=None,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = PacksTrainer(
        llama(),
        options,
        train_dataset=datasets.Dataset.from_dict({"input_ids": [[0]]}),  # penstock: not read
        processing_class=tokenizer(),
        rows=rows,  # penstock
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        log = [entry["loss"] for entry in train(Path(folder)).state.log_history if "loss" in entry]
    print(f"{len(log)} updates, loss {log[0]:.2f} to {log[-1]:.2f}")
