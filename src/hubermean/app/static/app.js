// What helps and is not needed: every page works without it.
"use strict";

// Show only the fields of what is chosen.
const conditional = document.querySelectorAll("[data-if]");
function choose() {
  for (const part of conditional) {
    const [name, value] = part.dataset.if.split("=");
    const radios = document.querySelectorAll(`input[type="radio"][name="${name}"]`);
    part.hidden = radios.length > 0 && ![...radios].some((radio) => radio.checked && radio.value === value);
  }
}
addEventListener("change", choose);
addEventListener("pageshow", choose); // a browser may fill in a form when one goes back
choose();

// Typing another epsilon chooses it.
const own = document.getElementById("own");
own?.addEventListener("input", () => {
  document.querySelector('input[name="epsilon"][value="own"]').checked = true;
});
for (const listed of document.querySelectorAll('input[name="epsilon"]:not([value="own"])')) {
  listed.addEventListener("change", () => { if (own) own.value = ""; });
}

// A form that charges is sent once. The server also sees to that: its token serves once.
for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
}
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // back: what is left may have changed
});

// How far a release is.
const running = document.querySelector("[data-run]");
if (running) {
  const said = document.getElementById("progress");
  const look = async () => {
    try {
      const answer = await fetch(running.dataset.run, { headers: { accept: "application/json" } });
      if (!answer.ok) return location.reload();
      const now = await answer.json();
      if (now.over) return location.reload();
      const words = now.status === "waiting"
        ? `Waiting for ${now.position} earlier release${now.position === 1 ? "" : "s"}.`
        : `Charging and computing: ${now.elapsed} seconds.`;
      if (said.textContent !== words) said.textContent = words;
    } catch {
      said.textContent = "The server does not answer. This page tries again.";
    }
    setTimeout(look, 300);
  };
  setTimeout(look, 300);
}

// Copy a command.
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
