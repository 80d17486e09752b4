use tompion_export::merge;
use tompion_reader::open;

use super::{babeltrace, corpus, read, test_dir};

#[test]
fn several_traces_are_one_folder_for_every_reader() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let paths = ["session-rotation", "trace-with-index", "wk-heartbeat-u"].map(|name| folder.join(name));
    let out = shop.path().join("all");
    let traces = open(&paths).unwrap();
    let merged = merge(&traces, &out).unwrap();
    assert_eq!((merged.traces, merged.clocks), (8, 3));
    assert_eq!(merged.hosts.into_iter().collect::<Vec<_>>(), ["joraj-alpa", "smarchi-efficios"]);

    let found = read(&out);
    let mut lines: Vec<String> =
        paths.iter().flat_map(|path| read(path).0.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(lines.len(), 266 + 4000 + 20);
    lines.sort_by_key(|line| line.split(']').next().map(str::to_owned));
    let mut sorted: Vec<&str> = found.0.lines().collect();
    assert!(sorted.is_sorted_by_key(|line| line.split(']').next()));
    sorted.sort_unstable();
    lines.sort_unstable();
    assert_eq!(sorted, lines);
    if let Some(text) = babeltrace(&out) {
        assert_eq!(text, found.0);
    }
}

#[test]
fn a_trace_is_not_merged_with_itself() {
    let Some(folder) = corpus() else { return };
    let shop = test_dir();
    let out = shop.path().join("all");
    let traces = open(&[folder.join("session-rotation/"), folder.join("session-rotation")]).unwrap();
    let error = merge(&traces, &out).unwrap_err().to_string();
    assert!(error.starts_with("expected each trace once, found "), "{error}");
    assert!(!out.exists());
}
