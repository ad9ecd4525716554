"use strict";
// The values under the pointer, of the step that it is nearest to.
const tip = document.getElementById("tip");
for (const plot of document.querySelectorAll("svg[data-hover]")) {
  const { start, step, rows } = JSON.parse(plot.dataset.hover);
  const left = Number(plot.dataset.left), inner = Number(plot.dataset.inner);
  const count = rows.length ? rows[0][2].length : 0;
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  plot.append(cursor);
  plot.addEventListener("mousemove", (event) => {
    const box = plot.getBoundingClientRect(), view = plot.viewBox.baseVal;
    const share = ((event.clientX - box.left) / box.width * view.width - left) / inner;
    const slot = Math.round(share * (count - 1));
    if (slot < 0 || slot >= count) return hide();
    cursor.setAttribute("d", `M${left + slot / (count - 1) * inner} 12V${view.height - 22}`);
    const time = new Date((start + slot * step) * 1000).toISOString().slice(0, 19).replace("T", " ");
    tip.replaceChildren(`${time} UTC`, ...rows.filter((row) => row[2][slot]).map(entry));
    tip.style.display = "block";
    const over = event.clientX + tip.offsetWidth + 24 > window.innerWidth;
    tip.style.left = `${event.clientX + (over ? -tip.offsetWidth - 12 : 12)}px`;
    tip.style.top = `${event.clientY + 12}px`;

    function entry([name, colour, values]) {
      const line = document.createElement("div"), dot = document.createElement("i");
      dot.style.background = colour;
      line.append(dot, `${name} ${values[slot]}`);
      return line;
    }
  });
  plot.addEventListener("mouseleave", hide);
  function hide() { tip.style.display = "none"; cursor.removeAttribute("d"); }
}
