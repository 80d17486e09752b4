//! Flame graph: spans and functions by their callers.

use std::collections::{BTreeMap, HashMap};

use super::answers::{FlameGraph, FlameNode};
use super::selection_stats::Area;
use super::{ApiRequest, ApiResult};
use tompion_index::LaneKind;
use tompion_index::entry::Entry;

/// Maximum number of nodes in an answer.
const MAX_NODES: usize = 20_000;

/// Span or function below its callers.
struct Node {
    label: u32,
    parent: Option<usize>,
    depth: usize,
    total: i64,
    below: i64,
    count: u64,
}

/// Tree of callers and callees.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    known: HashMap<(Option<usize>, u32), usize>,
    is_cut: bool,
}

impl Tree {
    /// Adds time to a child of a node; returns `None` if there are too many nodes.
    fn add(&mut self, parent: Option<usize>, label: u32, (time, count): (i64, u64)) -> Option<usize> {
        let node = match self.known.get(&(parent, label)) {
            Some(&known) => known,
            None if self.nodes.len() >= MAX_NODES => {
                self.is_cut = true;
                return None;
            }
            None => {
                let depth = parent.and_then(|parent| self.nodes.get(parent)).map_or(0, |node| node.depth + 1);
                self.nodes.push(Node { label, parent, depth, total: 0, below: 0, count: 0 });
                self.known.insert((parent, label), self.nodes.len() - 1);
                self.nodes.len() - 1
            }
        };
        if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
            parent.below = parent.below.saturating_add(time);
        }
        let found = self.nodes.get_mut(node)?;
        found.total = found.total.saturating_add(time);
        found.count = found.count.saturating_add(count);
        Some(node)
    }
}

/// Answers with the spans of an area, of some tracks or all.
pub fn flame(request: &ApiRequest<'_>) -> ApiResult<FlameGraph> {
    let (store, area) = {
        let index = request.opened.index();
        let area = Area::new(request, &index, &|kind| kind == LaneKind::Span)?;
        (index.store.clone(), area)
    };
    let mut threads: BTreeMap<u32, Vec<(i64, u16, Entry)>> = BTreeMap::new();
    for lane in &area.lanes {
        let times = lane.times(area.window);
        let spans = threads.entry(lane.track).or_default();
        lane.slice.read(&store, times, &mut |entry| {
            let (begin, end) = (entry.begin.max(times.0), entry.end.min(times.1));
            spans.push((begin, lane.depth, Entry { begin, end, ..*entry }));
            true
        })?;
    }
    let mut tree = Tree::default();
    for spans in threads.values_mut() {
        spans.sort_by_key(|(begin, depth, _)| (*begin, *depth));
        // Open spans, the innermost last: depth, end, node.
        let mut open: Vec<(u16, i64, Option<usize>)> = Vec::new();
        for (begin, depth, entry) in spans.iter() {
            while open.last().is_some_and(|(above, end, _)| above >= depth || end < begin) {
                open.pop();
            }
            let parent = open.last().and_then(|(.., node)| *node);
            let node = tree.add(parent, entry.label, (entry.duration().max(0), entry.count));
            open.push((*depth, entry.end, node));
        }
    }
    let index = request.opened.index();
    let node = |node: &Node| FlameNode {
        name: index.label(node.label).map(ToString::to_string).unwrap_or_default(),
        depth: node.depth,
        total: node.total,
        own: node.total.saturating_sub(node.below).max(0),
        count: node.count,
        parent: node.parent.map_or(-1, |parent| parent as i64),
    };
    let nodes = tree.nodes.iter().map(node).collect();
    Ok(FlameGraph { nodes, partial: area.is_partial, cut: tree.is_cut, known: area.known })
}
