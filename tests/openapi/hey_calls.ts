// Calls a gateway with the client that hey-api makes of its document: `node hey_calls.js URL`. Prints what came back.

import { createClient } from "./hey/client/index";
import { createRoot, diff, getPayload, putPayload, resolve } from "./hey/sdk.gen";

declare const process: { argv: string[] };

async function main(url: string): Promise<void> {
  const client = createClient({ baseUrl: url });
  const throwOnError = true as const;

  const { data: { cid } } = await putPayload({ client, throwOnError, body: new Blob(["hello"]), query: { codec: "raw" } });
  const { data: { root } } = await createRoot({ client, throwOnError, body: { arcs: { "docs/readme": cid } } });
  const body = { profile: "core.resolve/v0alpha1" as const, root, segments: ["docs", "readme"] };
  const { data: resolved } = await resolve({ client, throwOnError, body });
  const { data: compared } = await diff({ client, throwOnError, path: { first: root, second: root } });
  const { data: payload } = await getPayload({ client, throwOnError, path: { cid }, parseAs: "text" });
  const { error: absent } = await resolve({ client, body: { ...body, segments: ["missing"] } });

  console.log(JSON.stringify({
    target: resolved.target,
    kinds: resolved.prooflist.steps.map((step) => step.kind),
    differences: compared.entries.length,
    payload,
    absent: absent?.error,
  }));
}

void main(process.argv[2]!);
