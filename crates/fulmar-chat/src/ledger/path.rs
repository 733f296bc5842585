//! Finds the place of a prompt in the tree of tokens.

use super::Ledger;

/// A place on the path of a branch, after `position` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) branch: usize,
    pub(super) position: usize,
}

/// The first `len` tokens of a segment, as part of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) segment: usize,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Ledger {
    /// Returns the place at which `prompt` is appended: the end of the current path if the prompt extends it,
    /// else the place that shares the most tokens with it. Ties prefer the end of a branch to its middle,
    /// then the newest branch.
    pub(super) fn place(&self, prompt: &[u32]) -> Place {
        let current = Place { branch: self.current, position: self.num_path_tokens() };
        if self.begins(current, prompt) {
            return current;
        }
        let mut best = Place { branch: 0, position: 0 };
        let mut best_rank = (0, false, 0);
        let mut open = vec![best];
        while let Some(Place { branch, position }) = open.pop() {
            let end = position + self.num_shared(branch, &prompt[position..]);
            // A branch without shared tokens adds no place to those of its parent.
            if end > position || branch == 0 {
                let rank = (end, end == self.branches[branch].len, branch);
                if rank >= best_rank {
                    (best, best_rank) = (Place { branch, position: end }, rank);
                }
            }
            let children = self.branches[branch].children.iter().copied();
            open.extend(children.filter_map(|child| {
                let position = self.branches[child].fork?.position;
                (position <= end).then_some(Place { branch: child, position })
            }));
        }
        best
    }

    /// Returns the path of `branch` from the root to its end.
    pub(super) fn path(&self, branch: usize) -> Vec<Run> {
        let mut lines = Vec::new();
        let mut line = Some((branch, self.branches[branch].len));
        while let Some((branch, end)) = line {
            let fork = self.branches[branch].fork;
            lines.push((branch, end - fork.map_or(0, |fork| fork.position)));
            line = fork.map(|fork| (fork.branch, fork.position));
        }
        lines.iter().rev().flat_map(|&(branch, len)| self.own_runs(branch, len)).collect()
    }

    /// Returns the first `len` tokens that only `branch` owns.
    fn own_runs(&self, branch: usize, len: usize) -> impl Iterator<Item = Run> {
        let mut left = len;
        self.branches[branch].segments.iter().map_while(move |&segment| {
            let len = left.min(self.segments[segment].length);
            left -= len;
            (len > 0).then(|| Run { segment, start: self.segments[segment].start, len })
        })
    }

    /// Returns whether the whole path up to `place`, the end of a branch, is a prefix of `prompt`.
    fn begins(&self, place: Place, prompt: &[u32]) -> bool {
        let mut position = 0;
        place.position <= prompt.len()
            && self.path(place.branch).iter().all(|run| {
                let end = position + run.len;
                let equal = self.ids[run.start..run.start + run.len] == prompt[position..end];
                position = end;
                equal
            })
    }

    /// Returns the number of its own tokens that `branch` shares with the beginning of `rest`.
    fn num_shared(&self, branch: usize, rest: &[u32]) -> usize {
        let own = self.own_runs(branch, usize::MAX).flat_map(|run| &self.ids[run.start..run.start + run.len]);
        own.zip(rest).take_while(|(held, given)| held == given).count()
    }
}
