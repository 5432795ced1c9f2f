//! l. What a user can get wrong, and what the agent answers to it: one status, one
//! line.

use std::path::Path;

use super::setting::Setting;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::{Server, free_port};
use crate::support::wire::Client;

/// What has to stand on the other side for a row.
#[derive(Clone, Copy, Debug)]
enum Needs {
    /// The mistake is found before any connection.
    Nothing,
    /// A server that asks for the password `right`.
    Password,
    /// A server with a stream `KV_locks` of this configuration.
    Stream(&'static str),
}

/// One mistake.
struct Row {
    what: &'static str,
    needs: Needs,
    /// The usual flag that is left out together with its value.
    without: &'static str,
    /// Added arguments; `PORT` is replaced by the server's port.
    with: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    status: i32,
    /// What the one line must contain.
    says: &'static str,
}

const ROW: Row = Row {
    what: "",
    needs: Needs::Nothing,
    without: "",
    with: &[],
    environment: &[],
    status: 64,
    says: "",
};

const MIRROR: &str = r#"{"name":"KV_locks","mirror":{"name":"KV_source"},
    "storage":"file","num_replicas":1,"max_msgs_per_subject":1}"#;
const AGED: &str = r#"{"name":"KV_locks","subjects":["$KV.locks.>"],
    "storage":"file","num_replicas":1,"max_msgs_per_subject":1,"max_age":10000000000}"#;
const FOREIGN: &str = r#"{"name":"KV_locks","subjects":["orders.>"],
    "storage":"file","num_replicas":1,"max_msgs_per_subject":1}"#;
const IN_MEMORY: &str = r#"{"name":"KV_locks","subjects":["$KV.locks.>"],
    "storage":"memory","num_replicas":1,"max_msgs_per_subject":1}"#;

/// The configuration of a server that asks for a password.
const PASSWORD: &str = "authorization { user: putex, password: right }\n";

/// Every mistake that is tried. A new one is a new row.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { what: "unknown flag", with: &["--frobnicate"], says: "--frobnicate", ..ROW },
    Row { what: "unknown short flag", with: &["-z"], says: "-z", ..ROW },
    Row { what: "stray argument", with: &["stray"], says: "stray", ..ROW },
    Row { what: "missing required flag", without: "--stop", says: "--stop", ..ROW },
    Row { what: "missing value", without: "-r", with: &["-r"], says: "-r", ..ROW },
    Row { what: "bad unit", without: "-r", with: &["-r", "5parsecs"], says: "-r", ..ROW },
    Row { what: "no number", without: "-r", with: &["-r", "soon"], says: "-r", ..ROW },
    Row { what: "negative interval", without: "-r", with: &["-r", "-500"], says: "-r", ..ROW },
    Row { what: "negative count", without: "-f", with: &["-f", "-3"], says: "-f", ..ROW },
    Row { what: "overflow",
          without: "-r", with: &["-r", "99999999999999999999"], says: "-r", ..ROW },
    Row { what: "overflow by unit",
          without: "-r", with: &["-r", "18446744073709551615s"], says: "-r", ..ROW },
    Row { what: "empty key", without: "--key", with: &["--key", ""], says: "--key", ..ROW },
    Row { what: "key with a blank",
          without: "--key", with: &["--key", "a b"], says: "--key", ..ROW },
    Row { what: "key with a wildcard",
          without: "--key", with: &["--key", "a.>"], says: "--key", ..ROW },
    Row { what: "key that ends in a dot",
          without: "--key", with: &["--key", "a."], says: "--key", ..ROW },
    Row { what: "bucket with a dot",
          without: "--bucket", with: &["--bucket", "a.b"], says: "--bucket", ..ROW },
    Row { what: "empty token", without: "--token", with: &["--token", ""], says: "--token", ..ROW },
    Row { what: "no confirmation",
          without: "-c", with: &["-c", "0"], status: 78, says: "-c", ..ROW },
    Row { what: "one failure", without: "-f", with: &["-f", "1"], status: 78, says: "-f", ..ROW },
    Row { what: "wrong password", needs: Needs::Password, without: "--nats",
          with: &["--nats", "nats://putex:wrong@127.0.0.1:PORT"], status: 77, says: "", ..ROW },
    Row { what: "no password", needs: Needs::Password, status: 77, says: "", ..ROW },
    Row { what: "bucket of other subjects", needs: Needs::Stream(FOREIGN),
          status: 78, says: "locks", ..ROW },
    Row { what: "bucket with an age limit", needs: Needs::Stream(AGED),
          status: 78, says: "age", ..ROW },
    Row { what: "bucket that is a mirror", needs: Needs::Stream(MIRROR),
          status: 78, says: "mirror", ..ROW },
    Row { what: "bucket in memory", needs: Needs::Stream(IN_MEMORY),
          status: 78, says: "memory", ..ROW },
];

/// The flags of an agent that makes no mistake.
const USUAL: [(&str, &str); 10] = [
    ("--nats", "nats://127.0.0.1:PORT"),
    ("--bucket", "locks"),
    ("--key", "web"),
    ("--token", "a"),
    ("--healthcheck", "true"),
    ("--start", "true"),
    ("--stop", "true"),
    ("-r", "500"),
    ("-f", "3"),
    ("-c", "1"),
];

/// Tries every row that needs no server, and with a `setting` the others too.
/// Returns what was wrong, a line each.
pub(crate) fn try_all(agent: &Path, setting: Option<&Setting>) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in ROWS {
        let server = match (row.needs, setting) {
            (Needs::Nothing, _) => None,
            (Needs::Password | Needs::Stream(_), None) => continue,
            (needs, Some(setting)) => match prepare(needs, setting) {
                Ok(server) => Some(server),
                Err(why) => {
                    wrong.push(format!("{}: {why}", row.what));
                    continue;
                }
            },
        };
        let port = server.as_ref().map_or_else(free_port, Server::port);
        if let Err(why) = try_row(agent, row, port) {
            wrong.push(format!("{}: {why}", row.what));
        }
    }
    wrong
}

fn prepare(needs: Needs, setting: &Setting) -> Result<Server, String> {
    match needs {
        Needs::Nothing => Server::try_start(&setting.server, ""),
        Needs::Password => Server::try_start(&setting.server, PASSWORD),
        Needs::Stream(config) => {
            let server = Server::try_start(&setting.server, "")?;
            let mut client = Client::connect(server.port())?;
            client.create_bucket("source", "file")?;
            client.call("STREAM.CREATE.KV_locks", config)?;
            Ok(server)
        }
    }
}

fn try_row(agent: &Path, row: &Row, port: u16) -> Result<(), String> {
    let usual = USUAL.iter().filter(|(flag, _)| *flag != row.without);
    let usual = usual.flat_map(|(flag, value)| [*flag, *value]);
    let arguments: Vec<String> = usual
        .chain(row.with.iter().copied())
        .map(|argument| argument.replace("PORT", &port.to_string()))
        .collect();
    let ended = run_once(agent, &arguments, row.environment);
    let said = ended.said.lines().next().unwrap_or_default();
    let count = ended.said.lines().count();
    if ended.status != Some(row.status) {
        return Err(format!("status {:?} and not {}: {said}", ended.status, row.status));
    }
    if !(count == 1 && said.starts_with("putex: ") && said.contains(row.says)) {
        return Err(format!("{count} lines and not one about {:?}: {said}", row.says));
    }
    Ok(())
}

/// Runs an agent that ends by itself.
pub(crate) fn run_once(agent: &Path, arguments: &[String], environment: &[(&str, &str)]) -> Run {
    let sandbox = Sandbox::new("once");
    let mut command = sandbox.command(agent);
    command.args(arguments).envs(environment.iter().copied());
    sandbox.run(&mut command)
}
