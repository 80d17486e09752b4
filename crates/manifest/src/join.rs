//! Children of a recording, joined with its other processes by their process ids.

use std::collections::BTreeMap;

use crate::{Child, ENDED, KERNEL, Manifest, Source};

impl Manifest {
    /// Returns the children by their process ids. Sources without a known end, or with `ended`
    /// alone, get the end of their child.
    ///
    /// A process id that was used twice, or may have been, joins nothing: it doesn't say which
    /// process is meant. It may have been where children were beyond the limits, and where the
    /// kernel's source lost or overwrote events, as a flight recorder of the kernel always does
    /// after a while. Sources with one process id are one process before and after `exec`, or two.
    /// A source with a known parent must have the parent of its child. A process that joined after
    /// its parent had ended has another one, and keeps its own end.
    pub fn join_children(&mut self) -> BTreeMap<i64, Child> {
        if !self.lists_all_children() {
            return BTreeMap::new();
        }
        let children = unique(self.children.iter().map(|child| (child.pid, child)));
        let sources =
            unique(self.sources.iter_mut().filter_map(|source| source.pid.map(|pid| (pid, source))));
        for (pid, source) in sources {
            if let Some(child) = children.get(&pid).filter(|child| may_be(source, child)) {
                source.end = child.end.clone().or_else(|| source.end.take());
            }
        }
        children.into_iter().map(|(pid, child)| (pid, child.clone())).collect()
    }

    fn lists_all_children(&self) -> bool {
        let is_whole = |source: &Source| {
            !source.losses_unknown && source.overwritten == 0 && source.lost.values().all(|lost| *lost == 0)
        };
        let mut kernel = self.sources.iter().filter(|source| source.kind == KERNEL);
        !self.losses_unknown && self.beyond_limits.children == 0 && kernel.all(is_whole)
    }
}

/// Whether the end of a child is one that its source lacks.
fn may_be(source: &Source, child: &Child) -> bool {
    let lacks_end = source.end.as_deref().is_none_or(|end| end == ENDED);
    lacks_end && (source.parent == 0 || source.parent == child.parent)
}

/// Returns the values with process ids of their own, which no second value has.
fn unique<T>(values: impl Iterator<Item = (i64, T)>) -> BTreeMap<i64, T> {
    let mut found: BTreeMap<i64, Option<T>> = BTreeMap::new();
    for (pid, value) in values {
        found.entry(pid).and_modify(|known| *known = None).or_insert(Some(value));
    }
    found.into_iter().filter_map(|(pid, value)| Some((pid, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(pid: i64, end: &str) -> Child {
        Child { pid, parent: 3, end: Some(end.into()) }
    }

    fn source(pid: i64, end: Option<&str>) -> Source {
        Source { pid: Some(pid), end: end.map(str::to_owned), ..Source::default() }
    }

    /// Returns what a recording of the process 7 joins after a change.
    fn joined(change: impl FnOnce(&mut Manifest)) -> (Vec<i64>, Vec<Option<String>>) {
        let kernel = Source { kind: KERNEL.into(), ..Source::default() };
        let mut manifest = Manifest {
            sources: vec![source(7, Some(ENDED)), kernel],
            children: vec![child(7, "exited with 3")],
            ..Manifest::default()
        };
        change(&mut manifest);
        let children = manifest.join_children().into_keys().collect();
        let processes = manifest.sources.into_iter().filter(|source| source.pid.is_some());
        (children, processes.map(|source| source.end).collect())
    }

    #[test]
    fn a_source_has_the_end_of_its_only_child() {
        let exited = Some("exited with 3".to_owned());
        assert_eq!(joined(|_| {}), (vec![7], vec![exited.clone()]));
        assert_eq!(joined(|it| it.sources[0].end = None), (vec![7], vec![exited.clone()]));
        assert_eq!(joined(|it| it.sources[0].parent = 3), (vec![7], vec![exited]));
    }

    #[test]
    fn a_source_keeps_an_end_that_may_not_be_its_childs() {
        let ended = Some(ENDED.to_owned());
        assert_eq!(joined(|it| it.sources[0].parent = 4), (vec![7], vec![ended.clone()]));
        assert_eq!(joined(|it| it.children[0].end = None), (vec![7], vec![ended.clone()]));
        let twice = |it: &mut Manifest| it.sources.push(source(7, Some(ENDED)));
        assert_eq!(joined(twice), (vec![7], vec![ended.clone(), ended]));
        let running = Some("running".to_owned());
        assert_eq!(joined(|it| it.sources[0].end = running.clone()), (vec![7], vec![running.clone()]));
    }

    #[test]
    fn a_process_id_that_may_have_been_used_twice_joins_nothing() {
        let changes: [fn(&mut Manifest); 7] = [
            |it| it.children.push(child(7, "exited with 4")),
            |it| it.beyond_limits.children = 1,
            |it| it.losses_unknown = true,
            |it| it.sources[1].losses_unknown = true,
            |it| it.sources[1].overwritten = 1,
            |it| it.sources[1].lost = [("full".to_owned(), 1)].into(),
            |it| it.children.extend([child(7, "exited with 3"), child(7, "exited with 3")]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(joined(change), (vec![], vec![Some(ENDED.to_owned())]), "change {number}");
        }
        // Losses of a program hide no process.
        let (children, _) = joined(|it| it.sources[0].lost = [("full".to_owned(), 1)].into());
        assert_eq!(children, [7]);
    }
}
