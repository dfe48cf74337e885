/**
 * Builds: `node build.js package` compiles the package into dist/, `test` bundles the tests into build/, `explorer` the page
 * into the gateway's package, and `check-explorer` fails if the page there is another.
 */

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", target: "es2022", charset: "utf8", logLevel: "warning" };

function compile() {
  execFileSync("node_modules/.bin/tsc", ["-p", "tsconfig.build.json"], { stdio: "inherit" });
}

async function tests() {
  const entryPoints = ["test", "browser"].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`));
  await build({
    ...common,
    entryPoints,
    platform: "node",
    outdir: "build",
    entryNames: "[name]",
    packages: "external",
    sourcemap: "inline",
  });
}

const PAGE = "../python/coregw/gateway/explorer";
const LICENCES = ["@noble/hashes", "@noble/ed25519"].map(
  (name) => `${name}:\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}`,
);

/** The files of the page by name. */
export async function pageFiles() {
  const options = { ...common, minify: true, write: false, outdir: "out", legalComments: "none" };
  const banner = { js: `/*! coregw explorer, with ${LICENCES.join("\n\nand ")}\n*/` };
  const script = await build({ ...options, banner, entryPoints: { explorer: "explorer/main.ts" } });
  const style = await build({ ...options, entryPoints: { "explorer-style": "explorer/explorer-style.css" } });
  return {
    "explorer.js": script.outputFiles[0].text,
    "explorer-style.css": style.outputFiles[0].text,
    "index.html": readFileSync("explorer/index.html", "utf8"),
  };
}

/** Write the page into the gateway's package, or only compare it. */
async function page(isCheck) {
  for (const [name, text] of Object.entries(await pageFiles())) {
    const path = join(PAGE, name);
    if (!isCheck) writeFileSync(path, text);
    else if (readFileSync(path, "utf8") !== text)
      throw new Error(`${path} is not what js/explorer builds: run make explorer`);
  }
}

const commands = { package: compile, test: tests, explorer: () => page(false), "check-explorer": () => page(true) };
await commands[process.argv[2]]();
