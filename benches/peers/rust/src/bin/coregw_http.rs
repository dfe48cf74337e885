//! `coregw serve`, whose users send mutations over HTTP: `coregw_http PYTHON FOLDER KEYS`. The process that writes is the
//! gateway's. Each writer has a connection, and makes a sequence of maps of its own from the map of all keys.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use coregw_core::{Cid, Key, Kind, RootCid, verify};
use coregw_peers::writes::{Change, Store, run};

struct Gateway {
    process: Child,
    address: String,
    root: String,
    targets: Vec<String>,
    writers: Vec<Mutex<Writer>>,
}

struct Writer {
    connection: BufReader<TcpStream>,
    root: String,
    changed: HashMap<usize, String>,
}

/// The identifier of a payload whose SHA-256 is the value.
fn target(value: &[u8; 32]) -> String {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32], &value[..]].concat()).expect("a CID").text()
}

impl Writer {
    fn new(address: &str, root: &str) -> Self {
        let connection = TcpStream::connect(address).expect("a gateway");
        connection.set_nodelay(true).expect("a socket");
        Self { connection: BufReader::new(connection), root: root.to_owned(), changed: HashMap::new() }
    }

    fn post(&mut self, path: &str, accept: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        self.connection.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("an open connection");
        let (mut status, mut length) = (String::new(), 0);
        self.connection.read_line(&mut status).expect("a status");
        loop {
            let mut line = String::new();
            self.connection.read_line(&mut line).expect("a header");
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body).expect("a body");
        assert!(status.starts_with("HTTP/1.1 20"), "{status}{}", String::from_utf8_lossy(&body));
        body
    }
}

/// The text of a member of a JSON object.
fn member(body: &[u8], name: &str) -> String {
    let text = std::str::from_utf8(body).expect("JSON");
    let (_, rest) = text.split_once(&format!("\"{name}\":\"")).expect("the member");
    rest.split_once('"').expect("its end").0.to_owned()
}

impl Store for Gateway {
    fn prepare(&mut self, writers: usize) {
        self.writers = (0..writers).map(|_| Mutex::new(Writer::new(&self.address, &self.root))).collect();
    }

    fn write(&self, writer: usize, changes: &[Change<'_>]) {
        let mut writer = self.writers[writer].lock().expect("no panic");
        let mut parts = Vec::with_capacity(changes.len());
        for change in changes {
            let after = target(&change.value);
            let before = writer.changed.get(&change.number).unwrap_or(&self.targets[change.number]);
            let Change { key, .. } = change;
            parts
                .push(format!(r#"{{"path":"{key}","before":{{"target":"{before}"}},"after":{{"target":"{after}"}}}}"#));
            writer.changed.insert(change.number, after);
        }
        let body = format!(r#"{{"deltas":[{{"kind":"map","changes":[{}]}}]}}"#, parts.join(","));
        let path = format!("/v1/roots/{}/mutations", writer.root);
        let receipt = writer.post(&path, "application/json", &body);
        writer.root = member(&receipt, "new_root");
    }

    fn check(&self, writer: usize, change: &Change<'_>) -> bool {
        let mut writer = self.writers[writer].lock().expect("no panic");
        let key = Key::from_text(change.key).expect("a path");
        let segments: Vec<_> = change.key.split('/').map(|segment| format!("\"{segment}\"")).collect();
        let body = format!(
            r#"{{"profile":"core.map-proof/v0alpha1","root":"{}","key":[{}]}}"#,
            writer.root,
            segments.join(",")
        );
        let proof = writer.post("/v1/map-proof", "application/octet-stream", &body);
        let root = RootCid::of(&Cid::from_text(&writer.root).expect("a CID"), Kind::Map).expect("a root");
        let found = verify::key(&root, &key, &proof, verify::PROOF_LIMIT).expect("a valid proof");
        assert_eq!(found.expect("a target").text(), target(&change.value));
        true
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    run(|first| {
        let mut process = Command::new(&args[1])
            .args(["-m", "coregw", "serve", "--port", "0", "--set", "log_level=error", "--data", &args[2]])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a gateway");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("its address");
        let address = line.trim().rsplit('/').next().expect("an address").to_owned();
        let targets: Vec<_> = first.iter().map(|change| target(&change.value)).collect();
        let arcs: Vec<_> =
            first.iter().zip(&targets).map(|(change, target)| format!("\"{}\":\"{target}\"", change.key)).collect();
        let body = format!(r#"{{"arcs":{{{}}}}}"#, arcs.join(","));
        let root = member(&Writer::new(&address, "").post("/v1/roots", "application/json", &body), "root");
        let id = process.id();
        (Gateway { process, address, root, targets, writers: Vec::new() }, id)
    });
}
