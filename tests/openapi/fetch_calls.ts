// Calls a gateway with the client that openapi-generator makes in TypeScript: `node fetch_calls.js URL`.

import { CasApi, Configuration, DiffApi, ResolveApi, RootsApi, ResponseError } from "./fetch/index";

declare const process: { argv: string[] };

async function main(url: string): Promise<void> {
  const configuration = new Configuration({ basePath: url });
  const cas = new CasApi(configuration);
  const resolver = new ResolveApi(configuration);

  const { cid } = await cas.putPayload({ body: new Blob(["hello"]), codec: "raw" });
  const { root } = await new RootsApi(configuration).createRoot({ arcMap: { arcs: { "docs/readme": cid } } });
  const resolveRequest = { profile: "core.resolve/v0alpha1" as const, root, segments: ["docs", "readme"] };
  const resolved = await resolver.resolve({ resolveRequest });
  const compared = await new DiffApi(configuration).diff({ first: root, second: root });
  const payload = await (await cas.getPayload({ cid })).text();
  const absent = await resolver.resolve({ resolveRequest: { ...resolveRequest, segments: ["missing"] } }).catch(
    async (error: unknown) => error instanceof ResponseError ? (await error.response.json()).error : error,
  );

  console.log(JSON.stringify({
    target: resolved.target,
    kinds: resolved.prooflist.steps.map((step) => step.kind),
    differences: compared.entries.length,
    payload,
    absent,
  }));
}

void main(process.argv[2]!);
