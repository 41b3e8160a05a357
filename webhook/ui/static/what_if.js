// What if: a manifest or a changed gang, placed by the core on the live cluster. Nothing is written.
import * as api from "./api.js";
import { byId, choices, gangName } from "./dom.js";

/** Wire the form. answered: called with the answer, null when it is cleared. */
export function wireWhatIf(answered) {
  byId("what-if-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const size = byId("what-if-size").value;
    const gang = byId("what-if-gang").value;
    const question = { size: size ? Number(size) : null, level: byId("what-if-level").value || null, model: byId("what-if-model").value || null };
    if (gang) question.gang = gang;
    else question.manifest = byId("what-if-manifest").value;
    say("Asking ...", "");
    try {
      const answer = await api.whatIf(question);
      say([answer.sentence, ...answer.notes].join("\n"), answer.fits ? "fits" : "waits");
      answered(answer);
    } catch (error) {
      say(error.message, "waits");
      answered(null);
    }
  });
  byId("what-if-clear").addEventListener("click", () => {
    say("", "");
    answered(null);
  });
  byId("what-if-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) byId("what-if-manifest").value = await file.text();
  });
  byId("what-if-gang").addEventListener("input", drawManifest);
}

function say(text, kind) {
  byId("what-if-answer").textContent = text;
  byId("what-if-answer").className = kind;
}

/** Begin with a gang that waits. */
export function tryChange(id) {
  byId("what-if-gang").value = id;
  drawManifest();
  byId("what-if-size").focus();
}

/** A manifest is asked for where no gang is chosen. */
function drawManifest() {
  for (const id of ["what-if-manifest", "what-if-file"]) byId(id).closest("label").hidden = byId("what-if-gang").value !== "";
}

/** Keep the choices current. */
export function drawWhatIf({ picture }) {
  const waiting = picture.gangs.filter((row) => row.waiting);
  choices(byId("what-if-gang"), [["", "none: the manifest below"], ...waiting.map((row) => [row.id, gangName(row)])]);
  choices(byId("what-if-level"), [["", "as it is"], ...picture.levels.map((name) => [name, name])]);
  choices(byId("what-if-model"), [["", "as it is"], ...picture.models.map((name) => [name, name])]);
  drawManifest();
}
