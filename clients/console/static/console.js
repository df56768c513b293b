// What pages do beyond showing: times in the reader's zone, light and dark, refreshing themselves. Nothing is built
// from strings: a refreshed part comes from the console, parsed as a document whose scripts do not run.
"use strict";
const root = document.documentElement;

function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { /* a browser that keeps nothing */ }
  return null;
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
}
applyTheme(stored("theme"));

const themeButton = document.getElementById("theme");
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const wanted = isDark ? "light" : "dark";
  applyTheme(wanted);
  stored("theme", wanted);
});

const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const offsetOf = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" });
function localTimes(part) {
  for (const each of part.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    each.textContent = `${day.format(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
    const zone = offsetOf.formatToParts(at).find((one) => one.type === "timeZoneName");
    each.title = `${each.dateTime} (UTC), shown in ${zoneName}, ${zone ? zone.value : ""}`;
  }
}
localTimes(document);
const zone = document.getElementById("zone");
if (zone) zone.textContent = zoneName;

const choice = document.getElementById("every");
let timer = 0;
function every() {
  return Number(new URL(location.href).searchParams.get("every")) || 0;
}
function isBusy() {
  const at = document.activeElement;
  const form = at && at.closest ? at.closest("form") : null;
  return document.hidden || (form !== null && form !== undefined) || String(getSelection()) !== "";
}
async function refresh() {
  clearTimeout(timer);
  if (!every()) return;
  if (!isBusy()) {
    const problem = document.getElementById("live-problem");
    try {
      const answer = await fetch(location.href, { headers: { "x-refresh": "1" }, redirect: "error" });
      if (answer.status >= 500) throw new Error(String(answer.status));
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = found.getElementById("content"), old = document.getElementById("content");
      if (main) {
        const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
        const focused = [...old.querySelectorAll("a, button, [tabindex]")].indexOf(document.activeElement);
        localTimes(main);
        old.replaceChildren(...main.childNodes);
        old.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
        const again = [...old.querySelectorAll("a, button, [tabindex]")][focused];
        if (again) again.focus({ preventScroll: true });
      }
      const foot = found.querySelector("footer time"), oldFoot = document.querySelector("footer time");
      if (foot && oldFoot) { oldFoot.dateTime = foot.dateTime; localTimes(document.querySelector("footer")); }
    } catch {
      if (problem && !problem.firstChild) {
        const text = document.createElement("p");
        text.className = "notice bad";
        text.textContent = `The console or the cluster does not answer since ${day.format(new Date())}: what you see is older. ` +
          "If your login has ended, load the page again.";
        problem.append(text);
      }
    }
  }
  timer = setTimeout(refresh, every() * 1000);
}
if (choice) {
  choice.closest("label").hidden = false;
  const given = String(every());
  choice.value = [...choice.options].some((each) => each.value === given) ? given : "0";
  choice.addEventListener("change", () => {
    const url = new URL(location.href);
    if (choice.value === "0") url.searchParams.delete("every"); else url.searchParams.set("every", choice.value);
    history.replaceState(null, "", url);
    refresh();
  });
  if (every()) timer = setTimeout(refresh, every() * 1000);
}

// "/" goes to the search of a page, as in other consoles.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("[data-focus]");
  if (field) { event.preventDefault(); field.focus(); }
});

// On a phone the page that is shown may be outside of the menu's window.
for (const each of document.querySelectorAll("nav [aria-current]")) {
  each.parentElement.scrollLeft = each.offsetLeft - each.parentElement.offsetLeft - 40;
}
