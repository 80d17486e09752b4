//! Authentication of requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use tompion_viewer::{Config, Server};

use crate::client::{Client, TestDir, config};
use crate::fixtures;

fn client(dir: &TestDir) -> Client {
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let client = dir.open();
    client.trace();
    client
}

#[test]
fn no_answer_without_the_token() {
    let dir = TestDir::new();
    let client = client(&dir);
    let (host, token) = (client.host.clone(), client.token.clone());
    let status = |path: &str, headers: &str| {
        client.send(&format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"), b"").status
    };
    let own = format!("Host: {host}\r\n");
    assert_eq!(status("/", &own), 403);
    assert_eq!(status("/assets/app.js", &own), 403);
    assert_eq!(status("/api/trace?token=0", &own), 403);
    assert_eq!(status(&format!("/api/trace?token={}", &token[1..]), &own), 403);
    assert_eq!(status(&format!("/api/trace?token={token}"), &own), 200);
    let welcome = client.ask("/");
    let folder = welcome.header("location").unwrap();
    let port = host.rsplit_once(':').unwrap().1;
    let cookie = format!("{own}Cookie: a=b; tompion_view_{port}={token}\r\n");
    assert_eq!(status(folder, &cookie), 200);
    assert_eq!(status(&format!("{folder}api/trace"), &cookie), 200);
    assert_eq!(status(&format!("{folder}assets/app.js"), &cookie), 200);
    assert_eq!(status(&format!("{folder}api/trace"), &own), 403);
    let wrong = format!("{own}Cookie: tompion_view_1={token}\r\n");
    assert_eq!(status(&format!("{folder}api/trace"), &wrong), 403);
    // The cookie is good for nothing where other servers would be sent it, too.
    assert_eq!(status("/api/trace", &cookie), 403);
    assert_eq!(status("/", &cookie), 403);
    assert_eq!(status(&format!("/{}/api/trace", "0".repeat(32)), &cookie), 403);
}

#[test]
fn other_ports_are_sent_no_cookie() {
    let dir = TestDir::new();
    let client = client(&dir);
    let welcome = client.ask("/");
    assert_eq!(welcome.status, 303);
    let folder = welcome.header("location").unwrap();
    assert!(folder.len() > 32 && folder.starts_with('/') && folder.ends_with('/'), "{folder}");
    let cookie = welcome.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(
        cookie.ends_with(&format!("; Path={folder}")),
        "browsers send it for this folder alone: {cookie}"
    );
    assert!(!folder.contains(&client.token));
    let other = Client::open(&[dir.trace()], &dir.cache());
    assert_ne!(other.ask("/").header("location"), Some(folder), "no server can know another one's folder");
}

#[test]
fn nothing_is_written_unless_our_own_page_asks() {
    let dir = TestDir::new();
    let client = client(&dir);
    let (host, token) = (&client.host, &client.token);
    let export = "/api/export?format=ctf&from=0&to=5000";
    assert_eq!(client.ask(export).status, 405);
    for origin in ["", "Origin: http://127.0.0.1:1\r\n", "Origin: null\r\n"] {
        let request = format!(
            "POST {export}&token={token} HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(client.send(&request, b"").status, 403, "{origin}");
    }
    assert!(!dir.trace().with_file_name("trace-part").exists());
    let written = client.post(export, "").json();
    assert_eq!(written["events"], 9);
    assert!(dir.trace().with_file_name("trace-part").is_dir());
    let wrong = client.ask("/api/export?format=xx&from=0&to=5000");
    assert_eq!(wrong.json()["error"], "expected format=csv or format=ctf, found xx");
}

#[test]
fn no_page_of_another_origin() {
    let dir = TestDir::new();
    let client = client(&dir);
    let port = client.host.rsplit_once(':').unwrap().1.to_owned();
    let status = |headers: &str| {
        let token = &client.token;
        let request = format!("GET /api/trace?token={token} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        client.send(&request, b"").status
    };
    let own = format!("Host: {}\r\n", client.host);
    assert_eq!(status(""), 403, "no host at all");
    assert_eq!(status(&format!("Host: evil.example:{port}\r\n")), 403);
    assert_eq!(status("Host: 127.0.0.1:1\r\n"), 403);
    assert_eq!(status(&format!("Host: localhost:{port}\r\n")), 200);
    assert_eq!(status(&format!("{own}Origin: http://evil.example\r\n")), 403);
    assert_eq!(status(&format!("{own}Origin: null\r\n")), 403);
    assert_eq!(status(&format!("{own}Origin: https://{}\r\n", client.host)), 403);
    assert_eq!(status(&format!("{own}Origin: http://{}\r\n", client.host)), 200);
    assert_eq!(status(&format!("{own}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(status(&format!("{own}Sec-Fetch-Site: same-site\r\n")), 403, "another port of this machine");
    // A click on a link in a mail or an issue yields an instruction.
    let clicked = client.send(
        &format!(
            "GET /?token={} HTTP/1.1\r\n{own}Sec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n",
            client.token
        ),
        b"",
    );
    assert!(clicked.json()["error"].as_str().unwrap().contains("copy it into the address bar"));
    assert_eq!(status(&format!("{own}Sec-Fetch-Site: same-origin\r\n")), 200);
}

#[test]
fn answers_have_security_headers() {
    let dir = TestDir::new();
    let client = client(&dir);
    let welcome = client.ask("/");
    let page = client.ask(welcome.header("location").unwrap());
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    for answer in [welcome, page, client.ask("/api/trace"), client.ask("/api/nothing")] {
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'self'"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    }
}

#[test]
fn wrong_questions_have_one_line_for_an_answer() {
    let dir = TestDir::new();
    let client = client(&dir);
    for (path, status) in [
        ("/api/lanes?ids=0&from=1", 400),
        ("/api/lanes?ids=x&from=0&to=1", 400),
        ("/api/lanes?ids=0&from=5&to=1", 400),
        ("/api/lanes?ids=0&from=nan&to=1", 400),
        ("/api/at?lane=99999&time=0", 400),
        ("/api/at?lane=-1&time=0", 400),
        ("/api/search?q=&from=0", 400),
        ("/api/nothing", 404),
        ("/../Cargo.toml", 404),
        ("/assets/..%2f..%2fCargo.toml", 404),
    ] {
        let answer = client.ask(path);
        assert_eq!(answer.status, status, "{path}");
        let line = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(!line.is_empty() && !line.contains('\n'), "{path}: {line}");
    }
    // Far away and absurd, but no error.
    for path in [
        "/api/lanes?ids=0,1,2,77777&from=-9000000000000000000&to=9000000000000000000&width=99999999",
        "/api/lanes?ids=0,1&from=0&to=0&width=0",
        "/api/arrows?from=0&to=9007199254740992&ids=",
        "/api/events?from=-9000000000000000000&to=9000000000000000000&row=9223372036854775807&count=-1",
        "/api/select?from=-9000000000000000000&to=9000000000000000000",
        "/api/flame?from=0&to=1e30",
        "/api/step?lane=0&time=-9223372036854775808&dir=-1",
    ] {
        let status = client.ask(path).status;
        assert!(status == 200 || status == 400, "{path}: {status}");
    }
    assert_eq!(client.post("/api/notes", "{").status, 400);
    assert_eq!(client.post("/", "").status, 405);
    let put = format!(
        "PUT /api/notes?token={} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\r\n",
        client.token,
        host = client.host
    );
    assert_eq!(client.send(&put, b"").status, 405);
}

/// Warnings of a server about other users with a browser's secret.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the first line of the answer to a request with a secret, as this user or another one.
fn opened(host: &str, path: &str, user: Option<u32>) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    if let Some(user) = user {
        let (ip, port) = host.rsplit_once(':').unwrap();
        let script = r#"exec 3<>"/dev/tcp/$1/$2"; printf %s "$3" >&3; cat <&3"#;
        let mut command = Command::new("bash");
        let asked = command.args(["-c", script, "bash", ip, port, &request]).current_dir("/").uid(user);
        answer = String::from_utf8(asked.output().expect("bash").stdout).unwrap();
    } else {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut answer).unwrap();
    }
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_secret_in_a_browsers_arguments_is_for_our_user_alone() {
    let dir = TestDir::new();
    fixtures::write(&dir.trace(), &fixtures::story("worker"));
    let say = |line: &str| SAID.lock().unwrap().push(line.to_owned());
    let server = Server::bind(&Config { say, ..config(&[dir.trace()], &dir.cache()) }).unwrap();
    let url = server.url_for_once().unwrap();
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let path = format!("/{path}");
    let server = Arc::new(server);
    thread::spawn(move || server.run());
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0 {
        // Another user reads it in the list of processes, and tries it twice.
        for _ in 0..2 {
            assert_eq!(opened(host, &path, Some(65_534)), "HTTP/1.1 403 Forbidden");
        }
        let said = SAID.lock().unwrap().clone();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("user 65534") && said[0].contains("refused"), "{said:?}");
    } else {
        eprintln!("SKIPPED as another user, which only root can become");
    }
    assert_eq!(opened(host, &path, None), "HTTP/1.1 303 See Other", "it is good still");
    assert_eq!(opened(host, &path, None), "HTTP/1.1 403 Forbidden", "and once");
}
