//! The list of servers, as it is given on the command line.

use std::fmt;
use std::net::Ipv6Addr;

use super::auth::Credentials;

/// Port of a server that is named without one.
pub const PORT_DEFAULT: u16 = 4222;

/// One server: where it is, and who we are to it.
///
/// Shown as `host:port`, never with user, password or token.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What its URL says of user, password or token.
    pub credentials: Credentials,
}

/// Why a list of servers is refused. Holds nothing that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Server {
    /// Reads `nats://[user:password@|token@]host[:port]` or `host[:port]`, several
    /// of them with commas between. User, password and token are percent-decoded;
    /// an IPv6 address stands in brackets.
    ///
    /// # Errors
    ///
    /// When one of them is none, or is a `tls://` address.
    pub fn parse_list(list: &str) -> Result<Vec<Server>, UrlError> {
        // A comma or an @ in the wrong place can leave a piece of a password
        // where a host should be, so entries are then told by their number alone.
        let secret = list.contains('@');
        let entries: Vec<&str> = list.split(',').map(str::trim).collect();
        let one = |(index, entry): (usize, &&str)| {
            parse(entry).map_err(|reason| {
                let shown = match (secret, entry.is_empty()) {
                    (false, false) => format!("'{}'", without_port(entry).escape_debug()),
                    (true, _) | (_, true) => format!("entry {} of the list", index + 1),
                };
                UrlError(format!("{shown} is not a server address: {reason}"))
            })
        };
        entries.iter().enumerate().map(one).collect()
    }

    /// Reads an entry of `connect_urls`, `host:port`. `None` when it is none.
    pub(crate) fn from_advertised(text: &str, credentials: &Credentials) -> Option<Server> {
        let (host, port) = parse_host_port(text).ok()?;
        let credentials = credentials.clone();
        Some(Server {
            host,
            port,
            credentials,
        })
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

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

/// A forgotten `@host` puts the password where the port should be.
fn without_port(entry: &str) -> &str {
    let from = entry.find("://").map_or(0, |at| at + 3);
    let to = entry[from..].find(':').map_or(entry.len(), |at| from + at);
    &entry[..to]
}

fn parse(entry: &str) -> Result<Server, &'static str> {
    if entry.is_empty() {
        return Err("it is empty");
    }
    let rest = match entry.split_once("://") {
        None => entry,
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("nats") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("tls") => {
            return Err("tls:// is not supported yet");
        }
        Some(_) => return Err("only nats:// is supported"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((user_info, place)) => (parse_user_info(user_info)?, place),
        None => (Credentials::None, rest),
    };
    let (host, port) = parse_host_port(place)?;
    Ok(Server {
        host,
        port,
        credentials,
    })
}

fn parse_user_info(text: &str) -> Result<Credentials, &'static str> {
    match text.split_once(':') {
        _ if text.is_empty() => Err("nothing stands before the @"),
        Some(("", _)) => Err("the user name is empty"),
        Some((user, password)) => Ok(Credentials::User {
            user: percent_decode(user)?,
            password: percent_decode(password)?,
        }),
        None => Ok(Credentials::Token(percent_decode(text)?)),
    }
}

fn percent_decode(text: &str) -> Result<String, &'static str> {
    let bad = "a % before the @ is not followed by two hexadecimal digits";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(rest.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(bad);
        };
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).map_err(|_| "what stands before the @ is not UTF-8")
}

fn parse_host_port(place: &str) -> Result<(String, u16), &'static str> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let address: Ipv6Addr = host
            .parse()
            .map_err(|_| "no IPv6 address is in the brackets")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => PORT_DEFAULT,
            None => return Err("something follows the brackets"),
        };
        return Ok((address.to_string(), port));
    }
    let (host, port) = match place.split_once(':') {
        Some((_, port)) if port.contains(':') => return Err("an IPv6 address needs brackets"),
        Some((host, port)) => (host, parse_port(port)?),
        None => (place, PORT_DEFAULT),
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !host.bytes().all(known) {
        return Err("a host name has letters, digits, dots and hyphens only");
    }
    Ok((host.to_owned(), port))
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|&port| digits && port != 0);
    port.ok_or("the port is not a number from 1 to 65535")
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
            format!("{list:?}"),
            "[Server(a:4222), Server(b:1), Server(c:2)]"
        );
    }

    #[test]
    fn credentials() {
        let user = |user: &str, password: &str| Credentials::User {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        assert_eq!(one("nats://u:p@h").credentials, user("u", "p"));
        assert_eq!(one("u:@h").credentials, user("u", ""));
        assert_eq!(one("u:p:q@h").credentials, user("u", "p:q"));
        assert_eq!(one("u%40x:p%2C%3a%25@h").credentials, user("u@x", "p,:%"));
        assert_eq!(one("u:p@q@h").credentials, user("u", "p@q"));
        assert_eq!(
            one("t%C3%A9@h").credentials,
            Credentials::Token("t\u{e9}".to_owned())
        );
        assert_eq!(one("h").credentials, Credentials::None);
    }

    #[test]
    fn refusals_say_why() {
        for (text, message) in [
            (
                "",
                "entry 1 of the list is not a server address: it is empty",
            ),
            (
                "a,,b",
                "entry 2 of the list is not a server address: it is empty",
            ),
            (
                "tls://h",
                "'tls://h' is not a server address: tls:// is not supported yet",
            ),
            (
                "ws://h",
                "'ws://h' is not a server address: only nats:// is supported",
            ),
            (
                "h:0",
                "'h' is not a server address: the port is not a number from 1 to 65535",
            ),
            (
                "::1",
                "'' is not a server address: an IPv6 address needs brackets",
            ),
            (
                "nats://",
                "'nats://' is not a server address: it names no host",
            ),
        ] {
            assert_eq!(refusal(text), message);
        }
        for text in [
            "h:", "h:+1", "h:65536", "h:1x", ":1", "[::1", "[::1]x", "[h]", "a b", "a/b", "h\nx",
            "@h", ":p@h", "%4@h", "%zz@h", "%ff@h", "u:%@h", "h?tls", "\u{e9}",
        ] {
            assert!(Server::parse_list(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        for text in [
            "tls://user:secret@h",
            "nats://user:secret",
            "nats://u:sec,secret@h:x",
            "u:secret@h:x",
            "u:secret%zz@h",
            "secret@h:x",
            "u:secret@",
            "u:p/secret@a b",
        ] {
            assert!(!refusal(text).contains("sec"), "{}", refusal(text));
        }
        let server = one("nats://secret:secret@h");
        assert!(!format!("{server} {server:?} {server:#?}").contains("secret"));
    }

    #[test]
    fn advertised_servers_take_the_credentials() {
        let token = Credentials::Token("t".to_owned());
        let server = Server::from_advertised("[fe80::1]:4223", &token).expect("an address");
        assert_eq!(server.to_string(), "[fe80::1]:4223");
        assert_eq!(server.credentials, token);
        assert_eq!(Server::from_advertised("u:p@h:1", &token), None);
    }
}
