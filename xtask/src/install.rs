//! `x install`: puts what was built where programs and people look for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bindings;
use tompion_tasks::artifacts::{self, Profile, SONAME};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

const USAGE: &str = "usage: ./x install --prefix DIR [DESTDIR]";

/// Folders of the installation.
struct Place {
    /// The folder where the files will be when they are used.
    prefix: PathBuf,
    /// The folder where they are put now: the same, below DESTDIR for those who make packages.
    staged: PathBuf,
}

/// `x install --prefix DIR [DESTDIR]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let place = parse(workspace, arguments)?;
    artifacts::build(workspace, Profile::Release)?;
    let built = Profile::Release.folder(workspace);
    let binary = place.staged.join("bin/tompion");
    copy(&built.join("tompion"), &binary, 0o755)?;
    libraries(&built, &place.staged.join("lib"))?;
    tree(&workspace.root.join("include/tompion"), &place.staged.join("include/tompion"))?;
    tree(&workspace.root.join("include/lttng-ust"), &place.staged.join("include/tompion/lttng-ust"))?;
    tree(&workspace.root.join("include/tracy"), &place.staged.join("include/tompion/tracy"))?;
    write(
        &place.staged.join("lib/pkgconfig/tompion-tracy.pc"),
        &tracy_pkg_config(&place, &workspace.version),
    )?;
    integrations(&workspace.root.join("integrations"), &place)?;
    lttng(&workspace.root.join("integrations/lttng-ust"), &place, &workspace.version)?;
    if bindings::stage_python(workspace, &place.staged.join("lib/tompion/python"))? == 0 {
        eprintln!("without Python's package: no python3 from 3.9 on was found");
    }
    let pkg_config = place.staged.join("lib/pkgconfig");
    for linking in [Linking::Usual, Linking::Static] {
        let text = pkg_config_text(&place.prefix, &workspace.version, linking);
        write(&pkg_config.join(linking.file()), &text)?;
    }
    generated(&binary, &place.staged)?;
    println!("installed in {}", place.staged.display());
    Ok(())
}

fn parse(workspace: &Workspace, arguments: &[String]) -> Result<Place> {
    let (mut prefix, mut destination) = (None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--prefix" => prefix = words.next().cloned(),
            _ if word.starts_with("--prefix=") => prefix = word.split_once('=').map(|(_, dir)| dir.into()),
            _ if !word.starts_with('-') && destination.is_none() => destination = Some(word.clone()),
            _ => bail!("{USAGE}"),
        }
    }
    let Some(prefix) = prefix else { bail!("{USAGE}") };
    let prefix = workspace.typed_path(&prefix);
    let staged = match destination {
        Some(folder) => {
            let below = prefix.strip_prefix("/").unwrap_or(&prefix);
            workspace.typed_path(&folder).join(below)
        }
        None => prefix.clone(),
    };
    Ok(Place { prefix, staged })
}

fn libraries(built: &Path, lib: &Path) -> Result<()> {
    copy(&built.join("libtompion.so"), &lib.join(SONAME), 0o755)?;
    artifacts::replace_link(SONAME, &lib.join("libtompion.so"))?;
    copy(&built.join("libtompion.a"), &lib.join("libtompion.a"), 0o644)?;
    for entry in fs::read_dir(built).with_context(|| format!("cannot list {}", built.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("libtompion-") && name.ends_with(".so") {
            copy(&path, &lib.join(name), 0o755)?;
        }
    }
    Ok(())
}

/// Installs files for monitoring tools, and units for systemd that name the command where it will
/// be.
fn integrations(from: &Path, place: &Place) -> Result<()> {
    for tool in ["grafana", "munin", "prometheus"] {
        tree(&from.join(tool), &place.staged.join("share/tompion").join(tool))?;
    }
    for (unit, folder, name) in UNITS {
        let unit = from.join("systemd").join(unit);
        let text = fs::read_to_string(&unit).with_context(|| format!("cannot read {}", unit.display()))?;
        let target = place.staged.join("lib/systemd").join(folder).join(name);
        write(&target, &unit_text(&text, &place.prefix))?;
    }
    Ok(())
}

/// Installs what builds of LTTng-UST's users look for: the library's name, its pkg-config file and
/// its generator, in a folder of their own, so that LTTng's own files stay as they are.
fn lttng(from: &Path, place: &Place, version: &str) -> Result<()> {
    let folder = place.staged.join("lib/tompion/lttng-ust");
    copy(&from.join("lttng-gen-tp"), &folder.join("bin/lttng-gen-tp"), 0o755)?;
    for name in ["liblttng-ust.so", "liblttng-ust-common.so"] {
        write(&folder.join(name), "/* Programs that link LTTng-UST get Tompion. */\nINPUT(-ltompion)\n")?;
    }
    artifacts::lttng_links(&folder, "../../libtompion-lttng-ust.so")?;
    write(&folder.join("pkgconfig/lttng-ust.pc"), &lttng_pkg_config(&place.prefix, "lttng-ust", LTTNG_UST))?;
    let text = lttng_pkg_config(&place.prefix, "tompion-lttng", version);
    write(&place.staged.join("lib/pkgconfig/tompion-lttng.pc"), &text)
}

/// The version of LTTng-UST's interface that the headers have.
const LTTNG_UST: &str = "2.14.0";

fn lttng_pkg_config(prefix: &Path, name: &str, version: &str) -> String {
    PkgConfig {
        name,
        description: "Tracepoints of LTTng-UST, recorded by Tompion",
        version,
        libraries: "-L${libdir}/tompion/lttng-ust -L${libdir} -ltompion",
        include: "-I${includedir}/tompion/lttng-ust -I${includedir}",
    }
    .text(prefix)
}

fn tracy_pkg_config(place: &Place, version: &str) -> String {
    PkgConfig {
        name: "tompion-tracy",
        description: "Tracy's macros, recorded by Tompion",
        version,
        libraries: "-L${libdir} -ltompion-tracy",
        include: "-DTRACY_ENABLE -I${includedir}/tompion/tracy -I${includedir}/tompion/tracy/tracy",
    }
    .text(&place.prefix)
}

/// Units: their files, the folder below `lib/systemd` and the name that they get.
const UNITS: [(&str, &str, &str); 5] = [
    ("tompion-monitor.service", "system", "tompion-monitor.service"),
    ("tompion.service", "system", "tompion.service"),
    ("tompion.socket", "system", "tompion.socket"),
    ("tompion-user.service", "user", "tompion.service"),
    ("tompion-user.socket", "user", "tompion.socket"),
];

fn unit_text(text: &str, prefix: &Path) -> String {
    text.replace("/usr/bin/tompion", &prefix.join("bin/tompion").display().to_string())
}

fn tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            tree(&entry.path(), &target)?;
        } else {
            let is_program = entry.metadata()?.permissions().mode() & 0o111 != 0;
            copy(&entry.path(), &target, if is_program { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

/// Way in which a program gets the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linking {
    /// As a shared library; with `pkg-config --static` and `cc -static`, all of it into the
    /// program.
    Usual,
    /// The library into the program, which is linked dynamically else.
    Static,
}

impl Linking {
    const fn file(self) -> &'static str {
        match self {
            Self::Usual => "tompion.pc",
            Self::Static => "tompion-static.pc",
        }
    }
}

/// Libraries that the static one needs.
const NEEDED: &str = "-lpthread -lm -ldl -lc";

fn pkg_config_text(prefix: &Path, version: &str, linking: Linking) -> String {
    let (name, libraries) = match linking {
        // A program that is wholly static takes the unwinder from gcc's own archive.
        Linking::Usual => ("tompion", format!("-ltompion\nLibs.private: -lgcc_eh {NEEDED}")),
        // Libraries that the program loads are to find its agent.
        Linking::Static => (
            "tompion-static",
            format!("-l:libtompion.a -Wl,--export-dynamic-symbol=tompion_* -lgcc_s {NEEDED}"),
        ),
    };
    PkgConfig {
        name,
        description: "Records what a program does, with next to no disturbance",
        version,
        libraries: &format!("-L${{libdir}} {libraries}"),
        include: "-I${includedir}",
    }
    .text(prefix)
}

/// Description of a library for pkg-config.
struct PkgConfig<'a> {
    name: &'a str,
    description: &'a str,
    version: &'a str,
    /// Options of the linker.
    libraries: &'a str,
    /// Options of the compiler.
    include: &'a str,
}

impl PkgConfig<'_> {
    fn text(&self, prefix: &Path) -> String {
        let Self { name, description, version, libraries, include } = self;
        format!(
            "prefix={}\n\
             libdir=${{prefix}}/lib\n\
             includedir=${{prefix}}/include\n\
             \n\
             Name: {name}\n\
             Description: {description}\n\
             Version: {version}\n\
             Libs: {libraries}\n\
             Cflags: {include}\n",
            prefix.display()
        )
    }
}

/// Man pages and completions, which the command writes by itself.
fn generated(binary: &Path, staged: &Path) -> Result<()> {
    let share = staged.join("share");
    let man = share.join("man/man1");
    make_folder(&man)?;
    shell::run_quietly(Command::new(binary).arg("man").arg(&man))?;
    let places = [
        ("bash", "bash-completion/completions"),
        ("zsh", "zsh/site-functions"),
        ("fish", "fish/vendor_completions.d"),
    ];
    for (name, folder) in places {
        let folder = share.join(folder);
        make_folder(&folder)?;
        shell::run_quietly(Command::new(binary).args(["completions", name]).arg(&folder))?;
    }
    // bash-completion looks for a file with the command's own name.
    let bash = share.join("bash-completion/completions");
    if bash.join("tompion.bash").is_file() {
        fs::rename(bash.join("tompion.bash"), bash.join("tompion"))?;
    }
    Ok(())
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    replace(to, &bytes, mode)
}

fn write(to: &Path, text: &str) -> Result<()> {
    replace(to, text.as_bytes(), 0o644)
}

/// Writes beside and renames, so that a program that runs with the old file keeps it.
fn replace(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    make_folder(to.parent().context("a file has a folder")?)?;
    let mut fresh = to.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let written = fs::write(&fresh, bytes)
        .and_then(|()| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&fresh, to));
    written.with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace {
            root: "/r".into(),
            target: "/r/target".into(),
            version: "1.2.3".into(),
            crates: Vec::new(),
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn packages_are_staged_below_destdir_but_name_the_prefix() {
        let place = parse(&workspace(), &words("--prefix /usr /tmp/stage")).unwrap();
        assert_eq!(place.prefix, Path::new("/usr"));
        assert_eq!(place.staged, Path::new("/tmp/stage/usr"));
        let text = pkg_config_text(&place.prefix, "1.2.3", Linking::Usual);
        assert!(text.starts_with("prefix=/usr\nlibdir=${prefix}/lib\n"));
        assert!(pkg_config_text(&place.prefix, "1.2.3", Linking::Static).contains("-l:libtompion.a"));
        assert!(text.contains("Libs: -L${libdir} -ltompion\n"));
    }

    #[test]
    fn the_unit_runs_the_command_that_was_installed() {
        let text = unit_text(
            include_str!("../../integrations/systemd/tompion-monitor.service"),
            Path::new("/opt/tompion"),
        );
        assert!(text.contains("ExecStart=/opt/tompion/bin/tompion monitor --listen "), "{text}");
        assert!(!text.contains("/usr/"));
        for unit in [
            include_str!("../../integrations/systemd/tompion.service"),
            include_str!("../../integrations/systemd/tompion-user.service"),
        ] {
            let text = unit_text(unit, Path::new("/opt/tompion"));
            assert!(text.contains("ExecStart=/opt/tompion/bin/tompion serve\n"), "{text}");
        }
    }

    #[test]
    fn a_prefix_is_required() {
        assert!(parse(&workspace(), &[]).is_err());
        assert!(parse(&workspace(), &words("--prefix")).is_err());
        assert!(parse(&workspace(), &words("--prefix=/opt a b")).is_err());
    }
}
