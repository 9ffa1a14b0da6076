// On a phone, entries of the reference show their names, and open at a touch: a page of all texts has 90,000 pixels.
// A link to an entry opens it, and so does a search within the page.
(() => {
  const open = () => {
    const entry = document.getElementById(decodeURIComponent(location.hash.slice(1)))
    if (!entry) return
    for (let fold = entry.closest("details.fold"); fold; fold = fold.parentElement.closest("details.fold")) fold.open = true
    entry.scrollIntoView()
  }
  if (!matchMedia("(max-width: 44em)").matches) return
  for (const entry of document.querySelectorAll(".doc-object:is(.doc-function, .doc-class .doc-class, .doc-attribute)")) {
    const heading = entry.querySelector(":scope > .doc-heading")
    if (!heading || heading.nextElementSibling === null) continue
    const fold = document.createElement("details"), summary = document.createElement("summary")
    fold.className = "fold"
    summary.append(heading)
    fold.append(summary, ...entry.childNodes)
    entry.append(fold)
  }
  addEventListener("hashchange", open)
  open()
})()
