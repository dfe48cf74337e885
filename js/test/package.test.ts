/** The package as others use it: its size in a bundle, its entry points and types, and the examples of its README. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const HOME = join(import.meta.dirname, "..");
const MAX_BUNDLE_BYTES = 15_000;

async function bundle(...entries: string[]): Promise<Uint8Array> {
  const contents = entries.map((entry) => `export * from "${entry}";`).join("\n");
  const stdin = { contents, resolveDir: HOME };
  const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false } as const;
  const [file] = (await build({ stdin, ...options })).outputFiles;
  assert.ok(file);
  return file.contents;
}

test("a bundle of everything in the main entry has at most 15 kB with gzip", async () => {
  const size = gzipSync(await bundle("./dist/index.js"), { level: 9 }).length;
  console.log(`# bundle: ${size} bytes with gzip`);
  assert.ok(size <= MAX_BUNDLE_BYTES, `${size} bytes`);
  assert.ok(!new TextDecoder().decode(await bundle("./dist/index.js")).includes("zip215"));
});

test("the only dependencies at run time are the libraries of hashes and signatures", () => {
  const { dependencies } = JSON.parse(readFileSync(join(HOME, "package.json"), "utf8"));
  assert.deepEqual(Object.keys(dependencies), ["@noble/ed25519", "@noble/hashes"]);
  const { packages } = JSON.parse(readFileSync(join(HOME, "package-lock.json"), "utf8"));
  for (const [name, locked] of Object.entries<{ resolved?: string; integrity?: string }>(packages)) {
    assert.equal(locked.resolved, undefined, name);
    assert.ok(name === "" || locked.integrity, name);
  }
});

/** A project that depends on the package. */
function project(source: string): string {
  const folder = mkdtempSync(join(tmpdir(), "coregw-verify-"));
  execFileSync("mkdir", ["-p", join(folder, "node_modules")]);
  symlinkSync(HOME, join(folder, "node_modules/coregw-verify"));
  writeFileSync(join(folder, "package.json"), '{"type": "module"}');
  writeFileSync(join(folder, "example.ts"), source);
  return folder;
}

test("the examples of the README compile strictly and run", () => {
  const readme = readFileSync(join(HOME, "README.md"), "utf8");
  const examples = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
  assert.ok(examples.length >= 2);
  const folder = project(examples.join("\n"));
  const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"];
  execFileSync(join(HOME, "node_modules/.bin/tsc"), [...options, "example.ts"], { cwd: folder, stdio: "inherit" });
  const printed = execFileSync("node", ["example.js"], { cwd: folder, encoding: "utf8" });
  const expected = [...readme.matchAll(/^ *console\.log.*\/\/ (.*)$/gm)].map(([, line]) => line);
  assert.ok(expected.length >= 3);
  assert.deepEqual(printed.trimEnd().split("\n"), expected);
});
