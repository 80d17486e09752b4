//! `tompion view`: serves the viewer's page, or saves a picture of it.

use std::{
    fs::File,
    io::{IsTerminal, Write},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use tompion_os::{DirHandle, User};
use tompion_viewer::{Config, PictureRange, Server};

use crate::{messages::print_status, selection};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion view\n  \
    tompion view kernel-trace/ user-trace/\n  \
    tompion view --no-open --listen 8080 trace/\n  \
    tompion view --png picture.png trace/\n  \
    tompion view --png late.png --from 14:03:05.2 --to 14:03:05.3 --track controller trace/\n  \
    tompion view --png dark.png --dark --size 1280x720 trace/\n\n\
Requests need the token in the printed address. The index of a trace is kept beside it in .tompion-view, or in the \
user's cache if that can't be written. Ctrl-C ends the command.")]
pub struct Arguments {
    /// Folders with CTF traces of any producer, shown on one timeline [default: the newest in this
    /// folder]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Listen on this address and port, or port [default: 127.0.0.1, any port]
    #[arg(long, value_name = "ADDR|PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Don't open a browser
    #[arg(long)]
    no_open: bool,
    /// Save a picture instead, drawn by an installed Chromium
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// With --png, start the picture at this time: 14:03:05.25, `2026-01-02 14:03:05`, or seconds
    /// since 1970
    #[arg(long, value_name = "TIME", requires = "png")]
    from: Option<String>,
    /// With --png, end the picture at this time
    #[arg(long, value_name = "TIME", requires = "png")]
    to: Option<String>,
    /// With --png, pin a track to the top of the picture: a name, pid or tid (repeatable)
    #[arg(long = "track", value_name = "NAME", requires = "png")]
    tracks: Vec<String>,
    /// With --png, set the width and height of the picture in pixels
    #[arg(long, value_name = "WxH", requires = "png", default_value = "1600x900", value_parser = picture_size)]
    size: (u32, u32),
    /// With --png, draw light on dark
    #[arg(long, requires = "png")]
    dark: bool,
}

/// Allowed sides of a picture, in pixels. Below the minimum, the page has no room for its parts.
const SIDES: std::ops::RangeInclusive<u32> = 400..=16_384;

/// Parses a size such as `1280x720`.
fn picture_size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.parse().ok().filter(|side| SIDES.contains(side));
    let sides = text.split_once(['x', '×']).and_then(|(width, height)| side(width).zip(side(height)));
    sides.ok_or_else(|| {
        format!("expected a size such as 1280x720, each side from {} to {}", SIDES.start(), SIDES.end())
    })
}

/// Parses `8080`, `127.0.0.1:8080`, `[::1]:8080` or `127.0.0.1`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let port = text.parse().map(local).ok();
    let whole = port.or_else(|| text.parse().ok());
    let alone = || text.parse().ok().map(|ip: std::net::IpAddr| SocketAddr::new(ip, 0));
    whole.or_else(alone).ok_or_else(|| "expected an address such as 127.0.0.1:8080, or a port".into())
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = super::traces(&arguments.traces)?;
    super::warn_if_incomplete(&paths);
    let listen = arguments.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    if !listen.ip().is_loopback() {
        print_status(format!(
            "warning: anyone on the network path to {} can read the token, and then the trace",
            listen.ip()
        ));
        if listen.ip().is_unspecified() {
            print_status(
                "from another machine, replace 127.0.0.1 with this machine's IP address (hostname -I); host names are not accepted",
            );
        }
    }
    let range = picture_range(arguments, &paths)?;
    let server = Server::bind(&Config { paths, listen, cache: None, say: |line| print_status(line) })?;
    if let Some(remark) = server.remark() {
        print_status(format!("warning: {remark}"));
    }
    let url = server.url();
    if let Some(png) = &arguments.png {
        return thread::scope(|scope| {
            scope.spawn(|| server.run());
            // The server runs forever, so the process exits here.
            match save(&server, png, &range) {
                Ok(()) => std::process::exit(0),
                Err(error) => {
                    print_status(format!("{error:#}"));
                    std::process::exit(1)
                }
            }
        });
    }
    let mut output = std::io::stdout();
    writeln!(output, "{url}")?;
    output.flush()?;
    if !arguments.no_open && has_display() {
        open(&server.url_for_once()?);
    }
    if std::io::stderr().is_terminal() {
        print_status("Ctrl-C ends it");
    }
    server.run()
}

/// Returns the part of the traces that the picture shows.
fn picture_range(arguments: &Arguments, paths: &[PathBuf]) -> anyhow::Result<PictureRange> {
    let zone = selection::zone(false);
    let moment = |text: &Option<String>| {
        let day = || selection::first_day(paths, &zone, 0);
        text.as_deref().map(|text| selection::parse_moment(text, &zone, day)).transpose()
    };
    Ok(PictureRange {
        from: moment(&arguments.from)?,
        to: moment(&arguments.to)?,
        tracks: arguments.tracks.clone(),
        size: arguments.size,
        is_dark: arguments.dark,
    })
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|it| !it.is_empty()))
}

/// Opens the desktop's default browser, as the user behind sudo. Never as root: a browser runs
/// untrusted code.
fn open(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match User::behind_sudo() {
        Some(user) => user.run(&mut command),
        None if tompion_os::effective_user() == 0 => {
            return print_status("browsers are not started as root; open the address above");
        }
        None => {}
    }
    match command.spawn() {
        Ok(mut child) => drop(thread::spawn(move || child.wait())),
        Err(error) => {
            print_status(format!("can't open a browser by xdg-open ({error}); open the address above"))
        }
    }
}

/// Time that Chromium has for a picture once the trace is indexed.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the file with Chromium's messages.
const LOG: &str = "tompion.log";

/// Saves a picture of the page.
fn save(server: &Server, png: &Path, range: &PictureRange) -> anyhow::Result<()> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).flat_map(|folder| names.map(|name| folder.join(name)));
    let Some(chromium) = places.find(|place| place.is_file()) else {
        bail!(
            "--png needs Chromium, and none is installed; apt-get install chromium, or open the page with tompion view"
        );
    };
    while server.progress() < 1.0 {
        if let Some(failure) = server.failure() {
            bail!("can't draw a picture of an incomplete index: {failure}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let fragment = server.picture_fragment(range).map_err(anyhow::Error::msg)?;
    // Chromium runs as the user who started this command, so what it writes belongs to that user.
    let user = User::behind_sudo();
    let profile = std::env::temp_dir().join(format!("tompion-view-png-{}", std::process::id()));
    let profile =
        DirHandle::create_private(&profile).with_context(|| format!("can't make {}", profile.display()))?;
    let png = std::path::absolute(png).with_context(|| format!("can't write {}", png.display()))?;
    let url = format!("{}#{fragment}", server.url_for_once()?);
    let picture = Picture {
        chromium: &chromium,
        user: user.as_ref(),
        url: &url,
        profile: profile.path(),
        png: &drawn_file(&png, profile.path()),
        size: range.size,
    };
    let result = picture.draw().and_then(|()| {
        let bytes = std::fs::read(picture.png);
        bytes
            .and_then(|bytes| tompion_os::write_file(&png, &bytes))
            .with_context(|| format!("can't write {}", png.display()))
    });
    let _ = std::fs::remove_file(picture.png);
    let _ = profile.remove_all();
    result?;
    print_status(format!("picture in {}", png.display()));
    Ok(())
}

/// Returns the file that Chromium draws to. For root it is in the private profile: Chromium follows
/// links, which another user may place beside the picture. For others it is beside the picture,
/// because a confined Chromium can't share the folder for temporary files.
fn drawn_file(png: &Path, profile: &Path) -> PathBuf {
    match tompion_os::file_user() {
        0 => profile.join("picture.png"),
        _ => png.with_file_name(format!(".tompion-view.{}.png", std::process::id())),
    }
}

/// Message of Chromium if the system has no sandbox for it.
const NO_SANDBOX: &str = "No usable sandbox";

/// Picture to draw.
struct Picture<'a> {
    chromium: &'a Path,
    /// User that runs Chromium, if it is not this process's user.
    user: Option<&'a User>,
    url: &'a str,
    /// Folder for Chromium's profile and log.
    profile: &'a Path,
    png: &'a Path,
    /// Width and height in pixels.
    size: (u32, u32),
}

impl Picture<'_> {
    /// Draws the picture, with Chromium's sandbox. The sandbox is off only for root without a user
    /// behind sudo, because Chromium refuses to run as root with it, and where the system has none.
    fn draw(&self) -> anyhow::Result<()> {
        let is_root = self.user.is_none() && tompion_os::effective_user() == 0;
        self.run(!is_root)?;
        if !self.png.is_file() && !is_root && self.log().contains(NO_SANDBOX) {
            print_status("this system has no sandbox for Chromium; drawing the picture without it");
            self.run(false)?;
        }
        if !self.png.is_file() {
            bail!("{} saved no picture", self.chromium.display());
        }
        Ok(())
    }

    fn run(&self, with_sandbox: bool) -> anyhow::Result<()> {
        let mut command = Command::new(self.chromium);
        command.args(["--headless", "--hide-scrollbars", "--virtual-time-budget=15000"]);
        command.arg(format!("--window-size={},{}", self.size.0, self.size.1));
        command.args(["--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]);
        if !with_sandbox {
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", self.profile.display()));
        command.arg(format!("--screenshot={}", self.png.display())).arg(self.url);
        let log = File::create(self.profile.join(LOG)).context("can't write Chromium's messages")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.user.iter().for_each(|user| user.run(&mut command));
        let chromium = self.chromium.display();
        let mut child = command.spawn().with_context(|| format!("can't run {chromium}"))?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > PICTURE_TIMEOUT {
                child.kill()?;
                child.wait()?;
                bail!("{chromium} took more than {} s for the picture", PICTURE_TIMEOUT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn log(&self) -> String {
        let bytes = std::fs::read(self.profile.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
