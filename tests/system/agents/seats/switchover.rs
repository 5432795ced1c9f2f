//! Switchovers: what the command says, and that never more than one service runs.

use std::process::Child;
use std::time::Duration;

use super::group::{Group, R};
use super::site::{Site, token};
use crate::support::clock::{At, PATIENCE, ms, now, observe_for, until, until_true};
use crate::support::process::wait_exit;
use crate::support::sandbox::Sandbox;
use crate::support::wire::Client;

/// The service moves so many times.
const ROUNDS: usize = 3;

/// Waits for the end of a switchover that may go either way; returns its status. It always says
/// what has become of it.
#[track_caller]
fn end(mut child: Child) -> i32 {
    let status = wait_exit(&mut child, now() + PATIENCE).expect("it ends");
    let run = child.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let shown = String::from_utf8_lossy(&run.stdout).into_owned();
    match status.code() {
        Some(0) => assert!(shown.starts_with("from="), "{shown} {said}"),
        Some(75) => assert!(shown.is_empty() && said.starts_with("putex: web: "), "{said}"),
        other => panic!("{other:?}: {shown} {said}"),
    }
    status.code().expect("a status")
}

#[test]
fn the_service_goes_to_the_agent_that_is_named_or_to_the_best() {
    let Some(site) = Site::new(&["1", "2", "3"], &[]) else { return };
    for round in 0..ROUNDS {
        let from = site.holder();
        let named = (from + 1 + round % 2) % 3;
        let best = (0..3).find(|host| *host != from).expect("another");
        let (words, to) = match round % 2 {
            0 => (vec!["switchover", "web"], best),
            _ => (vec!["switchover", "--to", "host-?", "web"], named),
        };
        let token = token(to);
        let words: Vec<_> =
            words.iter().map(|it| if *it == "host-?" { &*token } else { it }).collect();
        let since = now();
        let moved = site.run(&words);
        let took = now() - since;
        assert_eq!(moved.status, Some(0), "{moved:?}");
        let due = format!("from=host-{from} to=host-{to} term=");
        assert!(moved.shown.starts_with(&due) && moved.said.is_empty(), "{moved:?}");
        let (next, up_at) = site.group.next_holder(0, from, since);
        assert_eq!(next, to);
        let down_at = site.group.observer.down_since(from, since).expect("it went down");
        let down = up_at.saturating_sub(down_at);
        println!("round {round}: down {:.1} ms, command {:.1} ms", ms(down), ms(took));
        // The agent has the lock already.
        assert_eq!(site.run(&["switchover", "--to", &token, "web"]).status, Some(0));
    }
    site.check_end();
}

#[test]
fn an_agent_that_is_not_fit_or_not_there_is_refused_with_the_reason_of_each() {
    let flags = ["--healthcheck", "! test -e $D/sick"];
    let Some(mut site) = Site::new(&["1", "2", "never"], &flags) else { return };
    let from = site.holder();
    assert_eq!(from, 0);
    std::fs::write(site.group.hosts[1].sandbox.join("sick"), "").expect("a file");
    until_true("a sick agent", || {
        site.run(&["status", "web"]).shown.contains("no candidate: the health check has failed")
    });
    let since = now();
    let refused = site.run(&["switchover", "web"]);
    assert_eq!((refused.status, &*refused.shown), (Some(75), ""));
    for why in [
        "host-1: no candidate: the health check has failed",
        "host-2: no candidate: priority never",
    ] {
        assert!(refused.said.contains(why), "{refused:?}");
    }
    let refused = site.run(&["switchover", "--to", "host-7", "web"]);
    assert_eq!((refused.status, &*refused.shown), (Some(75), ""));
    assert!(refused.said.contains("host-7: no answer"), "{refused:?}");
    // Agent host-1 stands by: there is nothing to be moved away from it.
    let nothing = site.run(&["switchover", "--from", "host-1", "web"]);
    assert_eq!(
        (nothing.status, &*nothing.said),
        (Some(0), "putex: web: host-1 does not hold it\n")
    );
    let refused = site.run(&["switchover", "--from", "host-7", "web"]);
    assert_eq!((refused.status, &*refused.shown), (Some(75), ""));
    let refused = site.run(&["switchover", "other"]);
    let says = "putex: other: no agent has ever held this key, and none answers: are key and \
                bucket right? putex status shows the keys of a bucket\n";
    assert_eq!((refused.status, &*refused.said), (Some(75), says));
    site.group.kill_host_without_lock(1);
    let refused = site.run(&["switchover", "--to", "host-1", "web"]);
    assert!(refused.said.contains("host-1: no answer"), "{refused:?}");
    assert_eq!(site.group.observer.changes_since(since), 0, "nothing moves");
    let mut client = Client::connect(site.group.server.port()).expect("a connection");
    let body = r#"{"last_by_subj":"$KV.putex.putex.switchover.web"}"#;
    assert!(client.call("STREAM.MSG.GET.KV_putex", body).is_err(), "nothing was written");
    site.check_end();
}

#[test]
fn when_the_agent_that_is_to_have_it_dies_somebody_runs_the_service() {
    let Some(mut site) = Site::new(&["1", "2", "3"], &[]) else { return };
    for _ in 0..ROUNDS {
        let from = site.holder();
        let to = (from + 1) % 3;
        let since = now();
        let child = site.begin(&["switchover", "--to", &token(to), "web"]);
        site.group.wait_for_line(from, "switchover to", since);
        site.group.kill_host_without_lock(to);
        let status = end(child);
        let holder = site.check_end();
        assert!(status == 75 && holder != to || status == 0, "{status}: {holder}");
        site.start_again(to);
    }
}

#[test]
fn a_restart_of_the_server_halfway_leaves_nothing_unknown() {
    let Some(mut site) = Site::new(&["1", "2"], &[]) else { return };
    for round in 0..ROUNDS {
        site.group.wait_for_all();
        let child = site.begin(&["switchover", "web"]);
        observe_for(R / 8 * (round as u32 % 4));
        site.group.server.kill();
        site.group.server.restart().expect("the server comes back");
        // The server may be gone before the request is written: then nothing is asked for.
        let mut child = child;
        let status = wait_exit(&mut child, now() + PATIENCE).expect("it ends");
        assert!(matches!(status.code(), Some(0 | 69 | 75)), "{status}");
        site.check_end();
    }
}

/// A holder that follows no request: here one that only renews its record.
#[test]
fn a_request_that_nobody_follows_is_withdrawn_at_its_time() {
    let Some(group) = Group::new(&["2"], 1, &[]) else { return };
    let mut site = Site { operator: Sandbox::new("operator"), group };
    let mut client = Client::connect(site.group.server.port()).expect("a connection");
    client.create_bucket("putex", "file").expect("a bucket");
    let mut revision = 0;
    let mut renew = |client: &mut Client| {
        let term = if revision == 0 { "" } else { "\r\nPutex-Term: 1" };
        let headers = format!(
            "Putex-Format: 1\r\nPutex-Incarnation: {:032x}\r\nPutex-Nonce: {revision}\r\n\
             Putex-Host: old\r\nPutex-Timing: 600 3 1\r\nPutex-Grace-Ms: 600\r\n\
             Putex-State: active{term}\r\nNats-Expected-Last-Subject-Sequence: {revision}",
            1
        );
        let reply = client.request("$KV.putex.web", &headers, "old").expect("an answer");
        revision = reply.stored_revision().expect("it is stored");
    };
    renew(&mut client);
    let since = now();
    site.group.start(0);
    site.group.wait_for_line(0, "-> standby", since);
    let mut last: At = now();
    let mut until_renewed = |client: &mut Client| {
        if now() >= last + R {
            last = now();
            renew(client);
        }
    };
    until_renewed(&mut client);
    let mut child = site.begin(&["switchover", "-w", "1", "web"]);
    let begun = now();
    let status = until("its end", || {
        until_renewed(&mut client);
        child.try_wait().expect("a child")
    });
    let took = now() - begun;
    assert_eq!(status.code(), Some(75));
    let said = child.wait_with_output().expect("its output").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("withdrawn: old has not begun to give it, and keeps it"), "{said}");
    assert!(took >= Duration::from_secs(1) + R * 2, "{took:?}");
    assert_eq!(site.group.holder(0), None);
}
