(() => {
const main = document.querySelector("main");
let version;
function merge(fresh) {
  const ids = new Set();
  document.getElementById("number").textContent = fresh.getElementById("number").textContent;
  for (const episode of fresh.querySelectorAll("details.ep")) {
    ids.add(episode.id);
    const old = document.getElementById(episode.id), turns = [...episode.querySelectorAll(".turn")];
    const shown = old ? old.querySelectorAll(".turn").length : 0;
    if (!old) main.append(episode);
    else if (turns.length < shown || old.dataset.ended) { episode.open = old.open; old.replaceWith(episode); }
    else {
      old.querySelector("summary").replaceWith(episode.querySelector("summary"));
      const last = [...old.querySelectorAll(".opening, .turn")].pop();
      last.after(...turns.slice(shown));
    }
  }
  for (const old of document.querySelectorAll("main > details.ep")) {
    if (ids.has(old.id) || old.dataset.ended) continue;
    if (!old.open) { old.remove(); continue; }
    old.dataset.ended = "1";
    const note = document.createElement("p"), link = document.createElement("a");
    note.className = "warn";
    link.href = document.body.dataset.list + "#" + old.id;
    link.textContent = "This episode has ended: its result.";
    note.append(link);
    old.querySelector(".talk").prepend(note);
  }
}
setInterval(async () => {
  if (document.hidden) return;
  const state = await fetch("/running.json").then(answer => answer.json()).catch(() => null);
  if (!state || state.version === version) return;
  const page = await fetch("/running.html").then(answer => answer.text()).catch(() => "");
  if (!page) return;
  merge(new DOMParser().parseFromString(page, "text/html"));
  version = state.version;
}, 1000);
})();
