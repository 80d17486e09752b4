use super::*;

fn of(text: &str, patterns: &[&str]) -> (Filter, Selection) {
    let available = crate::AvailableEvents { calls: Calls::without_formats(), catalog: Default::default() };
    let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
    let mut selection = Selection::matching(&available, &patterns).unwrap();
    (Filter::new(text, &mut selection, &available.calls).unwrap(), selection)
}

#[test]
fn programs_and_their_filter_agree() {
    let header = include_str!("../bpf/filter.h");
    assert!(header.contains(&format!(".rept {}\\n", splice::ROOM)));
    let header = include_str!("../bpf/generic.h");
    assert!(header.contains(&format!("#define FILTERED_BYTES {}\n", layout::TRACEPOINT_BYTES)));
}

#[test]
fn what_lacks_all_that_a_filter_asks_for_is_not_chosen() {
    let (filter, selection) = of("prev_tid == 1 && $tid > 0", &["sched_*", "syscall_entry_*"]);
    assert_eq!((selection.events, selection.entries.len()), (1 << FIRST, 0));
    assert_eq!((filter.code.len(), filter.by_reader.len()), (splice::ROOM, 0));
    let (filter, selection) = of("missing == 1 || $prio > 3 || $app.a:b == 1", &["sched_*"]);
    assert!(selection.is_empty());
    assert_eq!(filter.unknown, ["$prio", "$app.a:b"]);
}

#[test]
fn calls_of_one_condition_share_its_block() {
    let (filter, selection) = of("arg0 == 7", &["syscall_entry_*"]);
    assert!(selection.entries.len() > 300);
    let instructions = filter.code.iter().filter(|word| **word != code::NOTHING).count();
    assert!(instructions < 30, "{instructions}");
}

#[test]
fn the_reader_decides_what_programs_cannot() {
    let wakeup = KNOWN.iter().position(|known| known.name == "sched_wakeup").unwrap();
    let class = Class::Known(wakeup);
    for (text, by_reader) in [
        (r#"comm == "a*""#, false),
        (r#"comm == "*a""#, true),
        (r#"comm == "?""#, true),
        ("tid * 3 == 9", false),
        ("tid / prio == 9", true),
        ("tid == 1.5", true),
        ("tid + prio - target_cpu < -(prio << 3)", false),
        ("(tid == 1) + 1 == 2", true),
    ] {
        let (filter, selection) = of(text, &["sched_wakeup"]);
        assert_eq!(filter.leaves_to_reader(class), by_reader, "{text}");
        assert!(!selection.is_empty(), "{text}");
    }
}

#[test]
fn predicates_of_two_domains_are_refused() {
    let available = crate::AvailableEvents { calls: Calls::without_formats(), catalog: Default::default() };
    let mut selection = Selection::matching(&available, &["sched_wakeup".into()]).unwrap();
    let divided = Filter::new(r#"$comm == "dd" && comm == "*d""#, &mut selection, &available.calls);
    assert_eq!(divided, Err(FilterProblem::Divided("sched_wakeup".into())));
    assert!(matches!(Filter::new("a ==", &mut selection, &available.calls), Err(FilterProblem::Text(_))));
}

#[test]
fn the_filter_takes_the_place_that_is_kept() {
    if crate::load::OBJECT.is_empty() {
        return;
    }
    let (filter, _) = of("prev_tid == 1", &["sched_switch"]);
    let spliced = splice(crate::load::OBJECT, &filter.code).unwrap();
    assert_eq!(spliced.len(), crate::load::OBJECT.len());
    let bytes: Vec<u8> = filter.code.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(spliced.windows(bytes.len()).any(|window| window == bytes));
    assert!(splice(&spliced[..1000], &filter.code).is_none());
}
