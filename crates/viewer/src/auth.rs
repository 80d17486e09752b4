//! Authentication: only the browser that was given the token is answered.
//!
//! A page of another origin can make a browser send requests here, also by a host name that it lets
//! point to this machine. Such requests lack the token, carry their own `Origin` or `Host`, and
//! have no cookie, which is limited to this site. Cookies don't distinguish ports; browsers do in
//! `Sec-Fetch-Site`.
//!
//! A browser would also send the cookie to servers on other ports of this machine. So the page is
//! in a folder with a random name, and the cookie is limited to that path. A request with the token
//! is redirected there.
//!
//! All users of the machine can see a browser's arguments. So browsers are started with a secret
//! that opens the page once, and only for a socket of the user that started this program
//! ([`Peer::OwnUser`]). An attempt by another user is refused, and the secret stays valid.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tompion_http::{Peer, Request, Response};

/// Token, path and address that requests are checked against.
#[derive(Debug)]
pub struct Auth {
    token: String,
    /// Random name of the page's folder.
    folder: String,
    /// Secret that opens the page once; `None` after its use.
    once: Mutex<Option<String>>,
    address: SocketAddr,
    /// Receives a line about an attempt with another user's secret, and whether one was reported.
    say: fn(&str),
    has_said: AtomicBool,
}

impl Auth {
    /// Makes a new token for an address; `say` receives warnings.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn new(address: SocketAddr, say: fn(&str)) -> io::Result<Self> {
        let (token, folder) = (secret()?, secret()?);
        Ok(Self { token, folder, once: Mutex::new(None), address, say, has_said: AtomicBool::new(false) })
    }

    /// Returns the address of the page, with the token.
    pub fn url(&self) -> String {
        self.page(&self.token)
    }

    /// Returns the address of the page with a secret that is valid once, for the user that started
    /// this program.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn url_for_once(&self) -> io::Result<String> {
        let secret = secret()?;
        let url = self.page(&secret);
        *self.lock() = Some(secret);
        Ok(url)
    }

    fn page(&self, secret: &str) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let here: std::net::IpAddr = match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(here);
        }
        format!("http://{address}/?token={secret}")
    }

    /// Returns the path below the page's folder; `None` for other paths.
    pub fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (folder, below) = path.strip_prefix('/')?.split_at_checked(self.folder.len())?;
        (below.starts_with('/') && is_same(folder, &self.folder)).then_some(below)
    }

    /// Redirects a request with the token to the page, with a cookie that replaces the token.
    pub fn welcome(&self) -> Response {
        let folder = format!("/{}/", self.folder);
        let cookie =
            format!("{}={}; HttpOnly; SameSite=Strict; Path={folder}", self.cookie_name(), self.token);
        let mut response = Response::new(303, "text/plain; charset=utf-8", "");
        response.headers = vec![("Location", folder), ("Set-Cookie", cookie)];
        response
    }

    /// Returns the refusal of a request that is not allowed; `None` if it is allowed.
    pub fn refuse(&self, request: &Request) -> Option<Response> {
        let line = if !request.header("host").is_some_and(|host| self.is_own(host)) {
            "the host is not the one that is listened on"
        } else if !request.header("origin").is_none_or(|origin| self.is_own_origin(origin)) {
            "the request comes from another page"
        } else if request.method != "GET" && request.header("origin").is_none() {
            "the request writes and doesn't say from which page it comes"
        } else if request.header("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
        {
            "the request comes from another site; if you clicked on a link there, copy it into the address bar"
        } else if !self.has_token(request) {
            "the token is missing or wrong; open the address that tompion view printed, and let it keep a cookie"
        } else {
            return None;
        };
        Some(Response::error(403, line))
    }

    fn cookie_name(&self) -> String {
        format!("tompion_view_{}", self.address.port())
    }

    fn is_own(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port),
            _ => (host, "80"),
        };
        let is_name = matches!(name, "localhost" | "127.0.0.1" | "[::1]");
        let own = match self.address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        // A server on all addresses accepts any address in `Host`, but no name.
        let is_any = self.address.ip().is_unspecified()
            && name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        (is_name || name == own || is_any) && port == self.address.port().to_string()
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        origin.strip_prefix("http://").is_some_and(|host| self.is_own(host))
    }

    fn has_token(&self, request: &Request) -> bool {
        let name = self.cookie_name();
        let cookies = request.header("cookie").unwrap_or_default().split(';');
        let mut cookies = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let is_below = self.below(&request.path).is_some();
        let of_cookie =
            is_below && cookies.any(|(known, value)| known == name && is_same(value, &self.token));
        let given = request.query.text("token");
        of_cookie
            || given.is_some_and(|given| is_same(given, &self.token))
            || given.is_some_and(|given| request.path == "/" && self.takes_once(given, request.peer))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.once.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes_once(&self, given: &str, peer: Peer) -> bool {
        let mut once = self.lock();
        if !once.as_ref().is_some_and(|secret| is_same(given, secret)) {
            return false;
        }
        let line = match peer {
            Peer::OwnUser => return once.take().is_some(),
            Peer::OtherUser(user) => format!(
                "user {user} of this machine tried to open the page by what your browser was started with, and was refused"
            ),
            Peer::Machine(_) | Peer::Unknown => {
                "the page was not opened for a browser that may not be yours; open the address above \
                               in the one that you want it in"
                    .to_owned()
            }
        };
        // Repeated attempts are reported once.
        if !self.has_said.swap(true, Ordering::Relaxed) {
            (self.say)(&line);
        }
        false
    }
}

/// Returns 128 random bits in hexadecimal digits.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares two texts in constant time.
fn is_same(given: &str, token: &str) -> bool {
    let bytes = given.bytes().zip(token.bytes());
    given.len() == token.len() && bytes.fold(0, |odd, (a, b)| odd | (a ^ b)) == 0
}

/// Returns the security headers of every answer.
pub fn headers() -> [(&'static str, &'static str); 7] {
    [
        (
            "Content-Security-Policy",
            "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Frame-Options", "DENY"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of these tests' authenticators.
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn guard() -> (Auth, String) {
        let say = |line: &str| SAID.lock().unwrap().push(line.to_owned());
        let guard = Auth::new(SocketAddr::from(([127, 0, 0, 1], 4711)), say).unwrap();
        let url = guard.url_for_once().unwrap();
        let secret = url.strip_prefix("http://127.0.0.1:4711/?token=").unwrap().to_owned();
        (guard, secret)
    }

    #[test]
    fn a_secret_in_a_browsers_arguments_is_good_once() {
        let (guard, secret) = guard();
        assert!(!guard.url().contains(&secret));
        let own = Peer::OwnUser;
        assert!(!guard.takes_once(&secret[1..], own));
        assert!(guard.takes_once(&secret, own));
        assert!(!guard.takes_once(&secret, own));
    }

    #[test]
    fn a_secret_that_others_read_is_no_good_for_them_and_stays_good() {
        let (guard, secret) = guard();
        assert!(!guard.takes_once(&secret, Peer::OtherUser(4242)));
        assert!(!guard.takes_once(&secret, Peer::OtherUser(4242)));
        assert!(!guard.takes_once(&secret, Peer::Unknown));
        let said = SAID.lock().unwrap().clone();
        assert_eq!(said.iter().filter(|line| line.contains("user 4242") && !line.contains('\n')).count(), 1);
        assert!(guard.takes_once(&secret, Peer::OwnUser));
    }
}
