//! SQLite in WAL mode with `synchronous = FULL`: each transaction is synced. It has one writer at a time, so writers take
//! turns on one connection, which is faster than connections that wait for each other's locks.

use std::path::Path;
use std::sync::Mutex;

use coregw_peers::writes::{Change, Store, run};
use rusqlite::{Connection, params};

struct Table(Mutex<Connection>);

impl Table {
    fn put(&self, changes: &[Change<'_>]) -> rusqlite::Result<()> {
        let mut connection = self.0.lock().expect("no panic");
        let transaction = connection.transaction()?;
        {
            let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO arcs VALUES (?, ?)")?;
            for change in changes {
                statement.execute(params![change.key, change.value])?;
            }
        }
        transaction.commit()
    }
}

impl Store for Table {
    fn prepare(&mut self, _writers: usize) {}

    fn write(&self, _writer: usize, changes: &[Change<'_>]) {
        self.put(changes).expect("a transaction");
    }

    fn check(&self, _writer: usize, change: &Change<'_>) -> bool {
        let connection = self.0.lock().expect("no panic");
        let read = |row: &rusqlite::Row<'_>| row.get::<_, [u8; 32]>(0);
        let value = connection.query_row("SELECT value FROM arcs WHERE key = ?", [change.key], read);
        assert_eq!(value.expect("a row"), change.value);
        false
    }
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    run(|first| {
        let connection = Connection::open(Path::new(&folder).join("sqlite")).expect("a database");
        let setup = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE arcs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";
        connection.execute_batch(setup).expect("a table");
        let table = Table(Mutex::new(connection));
        table.put(first).expect("a transaction");
        (table, std::process::id())
    });
}
