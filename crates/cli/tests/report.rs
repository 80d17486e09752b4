//! `tompion test report`: a page that needs nothing else, the same as JSON, and two of them held
//! against each other.

use serde_json::Value;

use crate::support::{TestDir, libraries, run, tompion};

#[test]
fn a_report_is_made_and_compared() {
    let dir = TestDir::new();
    libraries();
    let words =
        ["test", "report", "--duration", "3s", "--rounds", "1", "--load", "none", "--name", "here & now"];
    let said = run(dir.tompion(&words).args(["--rate", "50k", "-o", "report.html"])).succeeded().err;
    assert!(said.ends_with("tompion: written: report.html and report.json\n"), "{said}");

    let text = std::fs::read_to_string(dir.path("report.json")).expect("JSON");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&report["test"], &report["name"], &report["format"]),
        (&"report".into(), &"here & now".into(), &1.into())
    );
    let recorders = report["npt"].as_array().expect("loops").iter();
    let recorders: Vec<&str> = recorders.filter_map(|loops| loops["recorder"].as_str()).collect();
    assert!(recorders.starts_with(&["nobody", "disabled", "user"]), "{recorders:?}");
    let user = &report["npt"][2]["runs"][0];
    assert_eq!(
        user["events"].as_u64().zip(user["lost"].as_u64()).map(|(a, b)| a + b),
        user["loops"].as_u64()
    );
    assert!(report["cyclic"][0]["outcome"]["cpus"][0]["late"]["count"].as_u64() > Some(100));
    assert!(report["machine"].as_array().is_some_and(|facts| facts.len() >= 5));

    let page = std::fs::read_to_string(dir.path("report.html")).expect("a page");
    assert!(
        page.contains("Real-time report: here &amp; now") && page.contains("class=\"verdict "),
        "no verdict"
    );
    assert_eq!(page.matches("<svg ").count(), 4);
    for foreign in ["http:", "https:", "<script", "<link", "@import", "src=", "NaN"] {
        assert!(!page.contains(foreign), "{foreign}");
    }

    let compare = ["test", "report", "--compare", "report.json", "report.json", "-o", "both.html"];
    run(&mut dir.tompion(&compare)).succeeded();
    let page = std::fs::read_to_string(dir.path("both.html")).expect("a page");
    assert!(page.contains("Side by side") && page.contains(">+0 %<"), "{page}");
}

#[test]
fn a_file_that_is_no_report_is_reported_in_a_line() {
    let dir = TestDir::new();
    std::fs::write(dir.path("other.json"), "{\"test\":\"npt\"}").expect("a file");
    let compare = |first: &str| {
        run(&mut dir.tompion(&["test", "report", "--compare", first, "other.json", "-o", "x.html"]))
            .exited(1)
            .err
    };
    assert!(compare("missing.json").starts_with("tompion: can't read missing.json"));
    let said = compare("other.json");
    assert!(
        said.starts_with("tompion: expected the JSON that `tompion test report` writes beside its page"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!dir.path("x.html").exists());

    let usage = |words: &[&str], code, expected: &str| {
        let said = run(tompion().args(["test", "report"]).args(words)).exited(code).err;
        assert!(said.contains(expected), "{said}");
    };
    usage(&["--load", "games"], 2, "games");
    usage(&["-o", "/nonexistent/x.html"], 1, "can't write /nonexistent/x.html");
    usage(&["-o", "x.json"], 1, "expected a page's name such as report.html, found x.json");
}
