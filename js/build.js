/**
 * Builds: `node build.js package` compiles the package into dist/, `test` bundles the tests into build/, and `explorer`
 * the page into the gateway's package.
 */

import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", target: "es2022", charset: "utf8", logLevel: "warning" };

function compile() {
  execFileSync("node_modules/.bin/tsc", ["-p", "tsconfig.build.json"], { stdio: "inherit" });
}

async function tests() {
  const entryPoints = readdirSync("test").map((name) => `test/${name}`);
  await build({ ...common, entryPoints, platform: "node", outdir: "build", packages: "external", sourcemap: "inline" });
}

await { package: compile, test: tests }[process.argv[2]]();
