//! The list of servers as written on the command line.

use std::fmt;
use std::net::Ipv6Addr;

use super::auth::{Login, Secret};

/// Port of a server that is named without one.
pub const PORT_DEFAULT: u16 = 4222;

/// The reason to refuse user information after a comma.
const SCHEME_WANTED: &str = "after a comma, a user or a token has nats:// or tls:// before it; a \
                             comma in a password is written %2C";

/// A server: its address, and the login of its URL.
///
/// Displayed as `host:port`, never with user, password or token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user, password or token in its URL.
    pub login: Login,
    /// Whether its URL requires TLS.
    pub tls: bool,
    /// The name that its certificate must contain: the host of the URL, also for a server
    /// that the server of that URL advertised. An advertised name proves nothing.
    pub tls_name: String,
}

impl Server {
    /// Returns whether these are more than one: an address may stand twice.
    pub fn are_several(servers: &[Server]) -> bool {
        let address = |server: &Server| (server.host.clone(), server.port);
        servers.iter().any(|server| address(server) != address(&servers[0]))
    }

    /// Reads `nats://[user:password@|token@]host[:port]`, the same with `tls://`, or
    /// `host[:port]`, several of them with commas between. User, password and token are
    /// percent-decoded; an IPv6 address stands in brackets.
    ///
    /// # Errors
    ///
    /// The number of the entry that is not the address of a server, and the reason. The text
    /// contains no part of the entry, which may be secret.
    pub fn parse_list(list: &str) -> Result<Vec<Server>, String> {
        let one = |(number, entry): (usize, &str)| {
            // Before it may be the first part of a secret with a comma.
            let is_doubtful = number > 1 && entry.contains('@') && !entry.contains("://");
            let parsed = if is_doubtful { Err(SCHEME_WANTED) } else { parse(entry) };
            // A comma or an @ in the wrong place can put a part of a password where the host
            // belongs, and a query may hold a token.
            parsed.map_err(|why| format!("server {number}: {why}"))
        };
        (1..).zip(list.split(',').map(str::trim)).map(one).collect()
    }

    /// Reads an entry of `connect_urls` of this server, `host:port`; `None` when it is
    /// malformed. Login and TLS are those of the URL of this server.
    pub(crate) fn advertised(&self, text: &str) -> Option<Server> {
        let (host, port) = parse_host_port(text).ok()?;
        Some(Server { host, port, ..self.clone() })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn parse(entry: &str) -> Result<Server, &'static str> {
    if entry.is_empty() {
        return Err("it is empty; leave the comma off");
    }
    if entry.contains(|letter: char| letter.is_whitespace() || ";\"'".contains(letter)) {
        return Err(
            "a blank, a ; or a quote is in it; write no quotes, and a comma between servers",
        );
    }
    if entry.starts_with("nats:/") && !entry.starts_with("nats://") {
        return Err("a slash is missing; write nats://HOST:4222");
    }
    let (scheme, rest) = entry.split_once("://").unwrap_or(("nats", entry));
    let tls = scheme.eq_ignore_ascii_case("tls");
    if !tls && !scheme.eq_ignore_ascii_case("nats") {
        return Err("only nats:// and tls:// are supported; write nats://HOST:4222");
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (login, location) = match rest.rsplit_once('@') {
        Some((user_info, location)) => (parse_user_info(user_info)?, location),
        None => (Login::None, rest),
    };
    let (host, port) = parse_host_port(location)?;
    Ok(Server { tls_name: host.clone(), host, port, login, tls })
}

fn parse_user_info(text: &str) -> Result<Login, &'static str> {
    let secret = |text| percent_decode(text).map(Secret::Given);
    match text.split_once(':') {
        _ if text.is_empty() => Err("nothing stands before the @"),
        Some(("", _)) => Err("the user name is empty"),
        Some((user, password)) => {
            Ok(Login::User { name: percent_decode(user)?, password: secret(password)? })
        }
        None => Ok(Login::Token(secret(text)?)),
    }
}

pub(crate) fn percent_decode(text: &str) -> Result<String, &'static str> {
    let bad = "a % before the @ is not followed by two hexadecimal digits";
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.as_bytes().split_at_checked(2).ok_or(bad)?;
        let value = |digit: u8| char::from(digit).to_digit(16);
        let byte = value(digits[0]).zip(value(digits[1])).ok_or(bad)?;
        bytes.push((byte.0 << 4 | byte.1) as u8);
        bytes.extend(rest);
    }
    String::from_utf8(bytes).map_err(|_| "what stands before the @ is not UTF-8")
}

fn parse_host_port(location: &str) -> Result<(String, u16), &'static str> {
    if let Some(rest) = location.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let address: Ipv6Addr =
            host.parse().map_err(|_| "no IPv6 address, without a zone, is in the brackets")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => PORT_DEFAULT,
            None => return Err("something follows the brackets"),
        };
        return Ok((address.to_string(), port));
    }
    let (host, port) = match location.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("an IPv6 address needs brackets; write [ADDRESS]:4222");
        }
        Some((_, port)) if port.contains(['/', '?', '#']) => {
            return Err("something follows the port; write nats://HOST:4222");
        }
        Some((host, port)) => (host, parse_port(port)?),
        None => (location, PORT_DEFAULT),
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if host.is_empty() || !host.bytes().all(known) {
        return Err(
            "a host name has letters, digits, dots and hyphens only; write nats://HOST:4222",
        );
    }
    Ok((host.to_owned(), port))
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|&port| digits && port != 0);
    port.ok_or("the port is not a number from 1 to 65535; write nats://HOST:4222")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Server {
        let mut servers = Server::parse_list(text).expect("an address");
        assert_eq!(servers.len(), 1);
        servers.remove(0)
    }

    fn refusal(text: &str) -> String {
        Server::parse_list(text).expect_err("refused").to_string()
    }

    #[test]
    fn places() {
        for (text, shown) in [
            ("localhost", "localhost:4222"),
            ("nats://localhost", "localhost:4222"),
            ("NATS://n1.example:15/", "n1.example:15"),
            ("127.0.0.1:15010", "127.0.0.1:15010"),
            ("[::1]", "[::1]:4222"),
            ("nats://u:p@[::1]:99", "[::1]:99"),
            (" a_b ", "a_b:4222"),
        ] {
            assert_eq!(one(text).to_string(), shown, "{text}");
        }
        let list = Server::parse_list("a,nats://b:1, c:2").expect("three");
        assert_eq!(
            list.iter().map(Server::to_string).collect::<Vec<_>>(),
            ["a:4222", "b:1", "c:2"]
        );
    }

    #[test]
    fn credentials() {
        let user = |name: &str, password: &str| Login::User {
            name: name.to_owned(),
            password: Secret::Given(password.to_owned()),
        };
        assert_eq!(one("nats://u:p@h").login, user("u", "p"));
        assert_eq!(one("u:@h").login, user("u", ""));
        assert_eq!(one("u:p:q@h").login, user("u", "p:q"));
        assert_eq!(one("u%40x:p%2C%3a%25@h").login, user("u@x", "p,:%"));
        assert_eq!(one("u:p@q@h").login, user("u", "p@q"));
        assert_eq!(one("t%C3%A9@h").login, Login::Token(Secret::Given("t\u{e9}".to_owned())));
        assert_eq!(one("h").login, Login::None);
    }

    #[test]
    fn refusals_say_why() {
        for (text, message) in [
            ("a,", "server 2: it is empty; leave the comma off"),
            ("ws://h", "server 1: only nats:// and tls:// are supported; write nats://HOST:4222"),
            ("h:0", "server 1: the port is not a number from 1 to 65535; write nats://HOST:4222"),
            ("::1", "server 1: an IPv6 address needs brackets; write [ADDRESS]:4222"),
            ("nats:/h", "server 1: a slash is missing; write nats://HOST:4222"),
            ("h:4222/path", "server 1: something follows the port; write nats://HOST:4222"),
            (
                "nats://",
                "server 1: a host name has letters, digits, dots and hyphens only; write \
                 nats://HOST:4222",
            ),
            (
                "nats://a,token@b",
                "server 2: after a comma, a user or a token has nats:// or tls:// before it; \
                 a comma in a password is written %2C",
            ),
            (
                "h;i",
                "server 1: a blank, a ; or a quote is in it; write no quotes, and a comma \
                 between servers",
            ),
        ] {
            assert_eq!(refusal(text), message);
        }
        for text in [
            "h:", "h:+1", "h:65536", "h:1x", ":1", "[::1", "[::1]x", "[h]", "a b", "a/b", "h\nx",
            "'h'", "\"h\"", "nats:/h", "nats://h:4222/x", "[fe80::1%0]", "@h", ":p@h", "%4@h",
            "%zz@h", "%ff@h", "u:%@h", "h?tls", "\u{e9}",
        ] {
            assert!(Server::parse_list(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        for text in [
            "wss://user:secret@h",
            "nats://user:secret",
            "nats://u:sec,secret@h:x",
            "u:secret@h:x",
            "u:secret%zz@h",
            "secret@h:x",
            "u:secret@",
            "u:p/secret@a b",
            "sec,ret@h",
            "nats://sec,ret@h",
            "nats://h?token=secret",
            "h:4222/?pass=secret",
        ] {
            assert!(!refusal(text).contains("sec"), "{}", refusal(text));
        }
        let server = one("nats://web:secret@h");
        assert!(!format!("{server} {server:?} {server:#?}").contains("secret"));
    }

    #[test]
    fn advertised_servers_are_what_their_url_is_but_for_the_place() {
        let named = one("tls://t@n1.example");
        let server = named.advertised("[fe80::1]:4223").expect("an address");
        assert_eq!(server.to_string(), "[fe80::1]:4223");
        assert_eq!(server.login, named.login);
        assert_eq!((server.tls, server.tls_name.as_str()), (true, "n1.example"));
        let another = server.advertised("evil.example:1").expect("an address");
        assert_eq!(another.tls_name, "n1.example");
        assert_eq!(named.advertised("u:p@h:1"), None);
        assert!(!one("nats://h").tls && !one("h").tls && one("TLS://h").tls);
    }
}
