//! The planner against naive ones over thousands of random lists.

use fulmar_core::Rng;
use fulmar_model::{Groups, PackStrategy, StreamPacker, balance, pack};
use proptest::prelude::*;

/// Checks every bin for every sequence.
fn naive(lengths: &[u32], capacity: usize, strategy: PackStrategy) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    order.sort_by_key(|item| std::cmp::Reverse(lengths[*item as usize]));
    let mut bins: Vec<(usize, usize, Vec<u32>)> = Vec::new();
    for (time, item) in order.into_iter().enumerate() {
        let length = lengths[item as usize] as usize;
        let fitting = bins.iter_mut().filter(|(space, ..)| *space >= length);
        let bin = match strategy {
            PackStrategy::FirstFit => fitting.into_iter().next(),
            PackStrategy::BestFit => {
                fitting.min_by_key(|(space, last, _)| (*space, std::cmp::Reverse(*last)))
            }
        };
        match bin {
            Some((space, last, items)) => {
                *space -= length;
                *last = time;
                items.push(item);
            }
            None => bins.push((capacity - length, time, vec![item])),
        }
    }
    bins.into_iter().map(|(.., items)| items).collect()
}

fn listed(groups: &Groups) -> Vec<Vec<u32>> {
    (0..groups.len()).map(|index| groups.group(index).to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_strategies_equal_naive_ones(
        capacity in 1_usize..200,
        shares in prop::collection::vec(0_f64..1.0, 0..80),
        power in 0.3_f64..3.0,
    ) {
        let lengths: Vec<u32> =
            shares.iter().map(|share| (share.powf(power) * (capacity + 1) as f64) as u32).collect();
        for strategy in [PackStrategy::BestFit, PackStrategy::FirstFit] {
            let groups = pack(&lengths, capacity, strategy).unwrap();
            prop_assert_eq!(listed(&groups), naive(&lengths, capacity, strategy));
            for bin in 0..groups.len() {
                let bounds = groups.cu_seqlens(bin, &lengths);
                prop_assert!(*bounds.last().unwrap() as usize <= capacity);
                for (item, bound) in groups.group(bin).iter().zip(bounds.windows(2)) {
                    prop_assert_eq!(bound[1] - bound[0], lengths[*item as usize]);
                }
            }
        }
    }

    #[test]
    fn a_stream_gives_every_sequence_once_in_bins_that_hold_it(
        capacity in 1_usize..64,
        max_open in 1_usize..6,
        shares in prop::collection::vec(0_f64..1.0, 0..100),
    ) {
        let lengths: Vec<usize> = shares.iter().map(|share| (share * (capacity + 1) as f64) as usize).collect();
        let mut packer = StreamPacker::new(capacity, max_open).unwrap();
        let mut bins = Vec::new();
        for (item, length) in lengths.iter().enumerate() {
            bins.extend(packer.push(item as u32, *length).unwrap());
        }
        let open = packer.flush();
        prop_assert!(open.len() <= max_open);
        bins.extend(open);
        for bin in &bins {
            prop_assert!(bin.iter().map(|item| lengths[*item as usize]).sum::<usize>() <= capacity);
            prop_assert!(bin.is_sorted(), "in the order they came in");
        }
        let mut all = bins.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..lengths.len() as u32).collect::<Vec<_>>());
        prop_assert!(packer.flush().is_empty());
    }

    #[test]
    fn workers_differ_by_no_more_than_the_dearest_item_and_hold_every_item_once(
        costs in prop::collection::vec(0_f64..100.0, 0..60),
        num_workers in 1_usize..9,
    ) {
        let groups = balance(&costs, num_workers).unwrap();
        prop_assert_eq!(groups.len(), num_workers);
        let sums: Vec<f64> = listed(&groups)
            .iter()
            .map(|items| items.iter().map(|item| costs[*item as usize]).sum())
            .collect();
        let (most, least) = sums.iter().fold((0.0, f64::MAX), |(most, least): (f64, f64), sum| (most.max(*sum), least.min(*sum)));
        let dearest = costs.iter().fold(0.0, |max: f64, cost| max.max(*cost));
        prop_assert!(most - least <= dearest + 1e-9, "{sums:?}");
        let mut all = groups.items.clone();
        all.sort_unstable();
        prop_assert_eq!(all, (0..costs.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn two_hundred_thousand_sequences_fill_their_bins() {
    let mut rng = Rng::new(3).stream("lengths");
    let lengths: Vec<u32> =
        (0..200_000).map(|_| 1 + (rng.uniform_f64() * rng.uniform_f64() * 4096.0) as u32).collect();
    let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    for strategy in [PackStrategy::BestFit, PackStrategy::FirstFit] {
        let bins = pack(&lengths, 4096, strategy).unwrap();
        let fill = total as f64 / (bins.len() * 4096) as f64;
        assert!(fill > 0.9999, "{strategy:?} fills {fill}");
    }
}
