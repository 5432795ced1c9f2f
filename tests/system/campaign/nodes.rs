//! The nodes of the network: where each is and what it is called.

use super::namespaces::run;
use super::wires::{Wires, card, device};

/// How many servers there are.
pub(crate) const SERVERS: usize = 3;

/// How many hosts with an agent there are.
pub(crate) const HOSTS: usize = 3;

/// A node by its number: the servers, then the hosts, then the campaign itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(usize);

impl Node {
    /// Returns the node of a server.
    pub(crate) fn server(number: usize) -> Node {
        assert!(number < SERVERS, "there is no server {number}");
        Node(number)
    }

    /// Returns the node of a host.
    pub(crate) fn host(number: usize) -> Node {
        assert!(number < HOSTS, "there is no host {number}");
        Node(SERVERS + number)
    }

    /// Returns the node from which the campaign looks at the servers. No fault is there.
    pub(crate) fn campaign() -> Node {
        Node(SERVERS + HOSTS)
    }

    /// Returns the servers and the hosts.
    pub(crate) fn all() -> impl Iterator<Item = Node> {
        (0..SERVERS + HOSTS).map(Node)
    }

    /// Returns its place in a table of all nodes.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// Returns its name, which its namespace and its host have too.
    pub(crate) fn name(self) -> String {
        match self.0.checked_sub(SERVERS) {
            None => format!("server-{}", self.0),
            Some(host) if host < HOSTS => format!("host-{host}"),
            Some(_) => "campaign".to_owned(),
        }
    }

    /// Returns its address.
    pub(crate) fn address(self) -> String {
        format!("10.77.0.{}", self.0 + 1)
    }
}

/// Gives every node its namespace and the end of its cable there.
pub(crate) fn connect(wires: &Wires) -> Result<(), String> {
    for node in Node::all().chain([Node::campaign()]) {
        let (cable, name) = (device(node.number()), node.name());
        run("ip", &["link", "set", &cable, "address", &card(node.number())])?;
        let mut inside = Vec::new();
        if node != Node::campaign() {
            run("ip", &["netns", "add", &name])?;
            run("ip", &["link", "set", &cable, "netns", &name])?;
            inside = vec!["-n", name.as_str()];
            run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        }
        let address = format!("{}/24", node.address());
        let add = ["address", "add", &address, "dev", &cable];
        run("ip", &[&inside[..], &add[..]].concat())?;
        run("ip", &[&inside[..], &["link", "set", &cable, "up"]].concat())?;
    }
    wires.connect();
    Ok(())
}
