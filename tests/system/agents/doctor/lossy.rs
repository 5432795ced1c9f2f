//! A link that loses frames: two network namespaces, and a cable between them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::Host;
use super::rng::Rng;
use super::wires::{Line, Wires, card, device};
use crate::support::clock::until_true;
use crate::support::network::{self, in_own_network, ip};
use crate::support::programs;
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;

/// The address of each end of the cable.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const PORT: u16 = 4222;

/// Returns what this machine lacks for such a link.
fn missing() -> Option<&'static str> {
    let has_tap = fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok();
    let lacks = !has_tap || !network::can("nsenter", &["--version"]);
    network::missing().or(lacks.then_some("no /dev/net/tun, or no nsenter"))
}

#[test]
fn a_link_that_loses_one_frame_in_ten_is_told() {
    let Some(binary) = programs::nats_server() else { return };
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let sandbox = Sandbox::new("lossy");
    let home = sandbox.subfolder("server");
    let mut server = in_own_network(|| start(&binary, &home));
    in_own_network(|| {
        let wires = Wires::make(2, Rng::new(7, 0)).expect("two cables");
        let far = server.id().to_string();
        let there = ["nsenter", "--net", "--target", &*far];
        let ends = [&[][..], &there[..]];
        ip(&[], &format!("link set {} netns {far}", device(1)));
        for (number, before) in ends.into_iter().enumerate() {
            let (cable, address, card) = (device(number), ADDRESSES[number], card(number));
            ip(before, &format!("link set {cable} address {card}"));
            ip(before, &format!("address add {address}/24 dev {cable}"));
            ip(before, &format!("link set {cable} up"));
        }
        wires.connect();
        let host = Host::on(format!("nats://{}:{PORT}", ADDRESSES[1]));
        until_true("a server", || {
            host.run(&["lease", "claim", "--for", "60", "x"]).status.is_some_and(|it| it != 69)
        });
        let (report, _) = host.doctor(&[]);
        report.assert("link", "ok", "0 of ");
        let long = Line { delay: Duration::from_millis(40), ..Line::default() };
        wires.set(vec![vec![long; 2]; 2]);
        until_true("an R that is short for a long way", || {
            let (report, _) = host.doctor(&["-r", "240ms", "--samples", "20"]);
            report.level("write") == "warning"
        });
        let (report, _) = host.doctor(&["--samples", "20"]);
        report.assert("write", "ok", "R 3 s");
        report.assert("link", "ok", "0 of ");
        let lossy = Line { loss: 0.1, ..Line::default() };
        wires.set(vec![vec![lossy; 2]; 2]);
        // How many of so few are lost is chance, also while it connects.
        until_true("a lossy link", || {
            let Some((report, _)) = host.connected_doctor(&[]) else { return false };
            let again = report.figure("link", "segments_resent");
            let late = report.figure("link", "reads_stalled");
            println!("{again} sent again, {late} late: {}", report.text("link"));
            report.level("link") != "ok" && again >= 2.0
        });
    });
    server.kill();
}

/// Starts a server in the network of this thread, and waits until it is ready.
fn start(binary: &Path, home: &Path) -> Server {
    let conf = format!(
        "listen: \"0.0.0.0:{PORT}\"\njetstream {{ store_dir: \"{}/js\" }}\n",
        home.display()
    );
    let mut server = Server::prepare_in(home, &conf, &[], binary, PORT).expect("a folder");
    ip(&[], "link set lo up");
    server.restart().expect("nats-server starts");
    server
}
