// The page's own server, and nothing else.

/** A refusal; status 401 means that nobody is logged in. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function asked(path, options) {
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  const body = await answer.json().catch(() => ({ error: `the page's server answered ${answer.status}` }));
  if (!answer.ok) throw new Refused(answer.status, body.error ?? answer.statusText);
  return body;
}

export const picture = () => asked("/api/picture");
/** isBrief: without pods and cards. */
export const nodes = (domain, isBrief = false) =>
  asked(`/api/nodes?domain=${encodeURIComponent(domain)}${isBrief ? "&brief=1" : ""}`);
export const gang = (id) => asked(`/api/gang?id=${encodeURIComponent(id)}`);
export const history = (since) => asked(`/api/history?since=${since}`);
export const whatIf = (question) =>
  asked("/api/what-if", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });

const AGAIN_MILLISECONDS = 5000;

/** Call `changed` for each new version. What breaks is connected again: by the browser, or here if it gave up. */
export function follow(changed) {
  const stream = new EventSource("/api/changes");
  stream.onmessage = (event) => changed(Number(event.data));
  stream.onerror = () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    setTimeout(() => {
      changed();
      follow(changed);
    }, AGAIN_MILLISECONDS);
  };
}
