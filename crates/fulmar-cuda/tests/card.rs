//! Checks memory, launches and errors of a GPU. The stage `cuda-emulated` runs this on the emulated GPU; without a GPU and
//! kernels there is nothing to check.
#![cfg(feature = "driver")]

use std::env;
use std::process::{Command, Output};

use fulmar_core::{ErrorKind, Result};
use fulmar_cuda::{Buffer, Card, GraphPool, Grid, arguments};

const GRID: Grid = Grid { blocks: (3, 1), threads: 256, shared_bytes: 0 };

/// Returns the GPU, if there is one. The stage, which has one, sets the variable.
fn card() -> Option<Card> {
    let card = Card::open(0);
    assert!(card.is_ok() || env::var_os("FULMAR_GPU_REQUIRED").is_none(), "{:?}", card.err());
    card.ok()
}

/// Returns `true` in a process that has the option of the emulated GPU. Elsewhere runs the test of that name in such a process.
fn has_option(test: &str, option: &str, value: &str) -> bool {
    if env::var(option).is_ok_and(|set| set == value) {
        return true;
    }
    if card().is_some_and(Card::is_emulated) {
        let of_test = ["--exact", test, "--nocapture"];
        let run = env::current_exe()
            .and_then(|program| Command::new(program).args(of_test).env(option, value).output());
        let is_passed =
            |run: &Output| run.status.success() && run.stdout.windows(8).any(|text| text == b"1 passed");
        assert!(run.as_ref().is_ok_and(is_passed), "{run:?}");
    }
    false
}

/// Doubles numbers on the GPU.
fn double(card: Card, numbers: &Buffer<f32>) -> Result<()> {
    card.queue("scale", GRID, arguments![numbers, 2.0_f32, numbers.len()])
}

#[test]
fn a_gpu_is_opened_once_and_one_that_is_not_there_is_unavailable() {
    let Some(card) = card() else { return };
    assert_eq!((card, card.ordinal()), (Card::open(0).unwrap(), 0));
    assert!(std::ptr::eq(card.gpu(), Card::open(0).unwrap().gpu()));
    let refused = Card::open(700).unwrap_err();
    assert_eq!((refused.kind(), refused.value()), (ErrorKind::Unavailable, Some("700")));
}

#[test]
fn elements_are_copied_in_and_out_and_between_ranges() {
    let Some(card) = card() else { return };
    let numbers: Vec<f32> = (0..1000).map(|at| at as f32).collect();
    let from = card.upload(&numbers).unwrap();
    let mut to = card.zeros::<f32>(1000).unwrap();
    let (_, behind) = to.view_mut().split_at(700);
    card.copy(from.view().slice(10..20), behind.slice(5..15)).unwrap();
    card.write(&[-1.0], to.view_mut().slice(0..1)).unwrap();
    let mut wanted = vec![0.0; 1000];
    wanted[0] = -1.0;
    wanted[705..715].copy_from_slice(&numbers[10..20]);
    assert_eq!(to.read().unwrap(), wanted);
    assert_eq!(card.read(to.view().slice(704..706)).unwrap(), [0.0, 10.0]);
    assert_eq!(card.upload(&[true, false, true]).unwrap().read().unwrap(), [true, false, true]);
    assert_eq!(card.upload::<u64>(&[]).unwrap().read().unwrap(), [0_u64; 0]);
    assert!(card.poisoned::<f32>(7).unwrap().read().unwrap().iter().all(|number| number.is_nan()));
}

/// Bytes of copies that go through pinned memory in many pieces, several times around, with a last piece of odd length.
const LARGE_BYTES: usize = (10 << 20) + 12;

/// Returns words that differ at every place and with `seed`.
fn words(bytes: usize, seed: u32) -> Vec<u32> {
    (0..bytes as u32 / 4).map(|at| (at ^ seed).wrapping_mul(0x9e37_79b9)).collect()
}

/// Copies each length in and out, to new memory and over old, with values that change as soon as a call has returned.
fn copy_each_length(card: Card, seed: u32) -> Result<()> {
    for bytes in [0, 4, 4096, 65532, 65536, 1 << 20, (1 << 20) + 4, 4 << 20, LARGE_BYTES] {
        let (mut first, mut second) = (words(bytes, seed), words(bytes, seed + 1));
        let mut there = card.upload(&first)?;
        first.fill(0);
        let before = card.duplicate(there.view())?;
        card.write(&second, there.view_mut())?;
        second.fill(0);
        assert!(before.read()? == words(bytes, seed), "{bytes} bytes in new memory");
        assert!(there.read()? == words(bytes, seed + 1), "{bytes} bytes over others");
        let middle = bytes / 16..bytes / 5;
        let part = card.read(there.view().slice(middle.clone()))?;
        assert!(part == words(bytes, seed + 1)[middle], "a part of {bytes} bytes");
    }
    Ok(())
}

#[test]
fn values_that_change_after_a_copy_of_any_length_are_copied_as_they_were() {
    let Some(card) = card() else { return };
    copy_each_length(card, 1).unwrap();
}

#[test]
fn threads_copy_at_once() {
    let Some(card) = card() else { return };
    std::thread::scope(|scope| {
        for seed in [10, 20, 30] {
            scope.spawn(move || copy_each_length(card, seed).unwrap());
        }
    });
}

#[test]
fn work_waits_for_copies_and_copies_over_its_memory_wait_for_work() {
    let Some(card) = card() else { return };
    for len in [3, 100_000, LARGE_BYTES / 4] {
        let (ones, fives) = (vec![1.0_f32; len], vec![5.0_f32; len]);
        let mut numbers = card.upload(&ones).unwrap();
        let other = card.upload(&fives).unwrap();
        double(card, &numbers).unwrap();
        double(card, &other).unwrap();
        let doubled = card.duplicate(numbers.view()).unwrap();
        card.write(&fives, numbers.view_mut()).unwrap();
        double(card, &numbers).unwrap();
        card.write(&ones[..1], numbers.view_mut().slice(0..1)).unwrap();
        assert!(doubled.read().unwrap() == vec![2.0; len], "{len} numbers of before");
        assert!(other.read().unwrap() == vec![10.0; len], "{len} other numbers");
        let after = numbers.read().unwrap();
        assert!(after[0] == 1.0 && after[1..] == vec![10.0; len - 1], "{len} numbers of after");
    }
}

#[test]
fn memory_that_is_dropped_after_its_copy_was_queued_is_freed_after_it() {
    let Some(card) = card() else { return };
    for bytes in [4, 100_000, LARGE_BYTES] {
        drop(card.upload(&words(bytes, 1)).unwrap());
    }
    // Reports a copy to memory that is not there.
    assert_eq!(card.upload(&words(1 << 20, 2)).unwrap().read().unwrap(), words(1 << 20, 2));
}

#[test]
fn more_copies_than_pinned_memory_has_pieces_for_are_queued_one_by_one() {
    let Some(card) = card() else { return };
    let mut numbers = card.zeros::<u32>(1500).unwrap();
    for at in 0..1500 {
        card.write(&[at as u32 + 1], numbers.view_mut().slice(at..at + 1)).unwrap();
    }
    assert_eq!(numbers.read().unwrap(), (1..=1500).collect::<Vec<u32>>());
}

#[test]
fn copies_work_without_pinned_memory() {
    if has_option("copies_work_without_pinned_memory", "FULMAR_EMULATED_FAIL_PINNED", "1") {
        let card = card().unwrap();
        copy_each_length(card, 1).unwrap();
        let numbers = card.upload(&vec![3.0_f32; 100_000]).unwrap();
        double(card, &numbers).unwrap();
        assert_eq!(numbers.read().unwrap(), vec![6.0; 100_000]);
    }
}

#[test]
fn dropped_memory_is_free_again() {
    let Some(card) = card().filter(|card| card.is_emulated()) else { return };
    // Other tests run meanwhile, but none takes that much.
    let (free, used) = (card.free_bytes().unwrap(), card.used_bytes().unwrap());
    let taken = card.zeros::<u8>(1 << 30).unwrap();
    assert!(card.free_bytes().unwrap() < free - (1 << 29) && card.used_bytes().unwrap() > used + (1 << 29));
    drop(taken);
    assert!(card.free_bytes().unwrap() > free - (1 << 29) && card.used_bytes().unwrap() < used + (1 << 29));
}

#[test]
fn memory_that_cannot_be_had_is_refused_with_the_bytes_wanted_and_free_and_all_works_on() {
    let Some(card) = card() else { return };
    let len = card.gpu().memory_bytes as usize / 8 + 1;
    let refused = card.zeros::<f64>(len).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    assert!(refused.detail().contains(&format!("{} bytes wanted", len * 8)), "{refused}");
    assert!(refused.detail().contains(" bytes free"), "{refused}");
    assert_eq!(card.zeros::<f64>(usize::MAX / 2).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(card.upload(&[1.5_f64]).unwrap().read().unwrap(), [1.5]);
}

#[test]
fn an_allocation_that_fails_once_is_tried_again() {
    if has_option("an_allocation_that_fails_once_is_tried_again", "FULMAR_EMULATED_FAIL_ALLOCATION", "2") {
        let card = card().unwrap();
        let (first, second) = (card.upload(&[1.0_f32]).unwrap(), card.upload(&[2.0_f32]).unwrap());
        assert_eq!((first.read().unwrap(), second.read().unwrap()), (vec![1.0], vec![2.0]));
    }
}

#[test]
fn a_failed_launch_is_an_error_with_the_name_of_its_kernel_and_the_next_one_works() {
    let name = "a_failed_launch_is_an_error_with_the_name_of_its_kernel_and_the_next_one_works";
    if has_option(name, "FULMAR_EMULATED_FAIL_LAUNCH", "2") {
        let card = card().unwrap();
        let numbers = card.upload(&[3.0_f32, 4.0]).unwrap();
        double(card, &numbers).unwrap();
        let failed = double(card, &numbers).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert_eq!(
            failed.detail(),
            "scale must run on cuda:0: cuLaunchKernel returned CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        );
        double(card, &numbers).unwrap();
        assert_eq!(numbers.read().unwrap(), [12.0, 16.0]);
    }
}

#[test]
fn arguments_that_differ_from_the_parameters_are_refused_before_the_launch() {
    let Some(card) = card() else { return };
    let numbers = card.upload(&[3.0_f32]).unwrap();
    let detail = |error: fulmar_core::Error| error.detail().to_owned();
    let few = card.queue("scale", GRID, arguments![&numbers, 2.0_f32]).map_err(detail);
    assert_eq!(few, Err("scale must be launched with 3 arguments: got 2".into()));
    let wide = card.queue("scale", GRID, arguments![&numbers, &numbers, 1_u32]).map_err(detail);
    assert!(wide.unwrap_err().starts_with("scale must have 4 bytes as argument 1: got Address("));
    let large =
        card.queue("first_non_finite", GRID, arguments![&numbers, 1_u64 << 32, &numbers]).map_err(detail);
    assert_eq!(large, Err("first_non_finite must have 4 bytes as argument 1: got Number(4294967296)".into()));
    let unknown = card.queue("no_such_kernel", GRID, arguments![&numbers]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    assert!(
        unknown.detail().starts_with("no_such_kernel must run on cuda:0: cuModuleGetFunction"),
        "{unknown}"
    );
    assert_eq!(numbers.read().unwrap(), [3.0]);
}

#[test]
fn a_lost_context_refuses_every_later_call_with_the_first_cause() {
    let name = "a_lost_context_refuses_every_later_call_with_the_first_cause";
    // A GPU without clusters is lost by a kernel with them.
    if has_option(name, "FULMAR_EMULATED_CAPABILITY", "80") {
        let card = card().unwrap();
        let numbers = card.upload(&[3.0_f32; 8]).unwrap();
        let at = &numbers;
        let grid = Grid { blocks: (8, 1), threads: 256, shared_bytes: 0 };
        let all = arguments![at, at, 1_u32, at, at, at, at, at, at];
        let first = card.queue("log_prob_and_backward_rows", grid, all).unwrap_err();
        assert!(first.detail().contains("CUDA_ERROR_LAUNCH_FAILED"), "{first}");
        for later in
            [double(card, at), numbers.read().map(drop), card.finish(), card.zeros::<u8>(1).map(drop)]
        {
            let later = later.unwrap_err();
            assert_eq!(later.kind(), ErrorKind::Unavailable);
            assert!(later.detail().contains(first.detail()), "{later}");
        }
    }
}

#[test]
fn only_reads_and_finishes_wait() {
    let name = "only_reads_and_finishes_wait";
    // In a process of its own, where no other test waits; every call with that number works.
    if has_option(name, "FULMAR_EMULATED_FAIL_LAUNCH", "1000") {
        let card = card().unwrap();
        let mut numbers = card.upload(&[3.0_f32]).unwrap();
        double(card, &numbers).unwrap();
        card.write(&[5.0], numbers.view_mut()).unwrap();
        // More than fits in pinned memory.
        card.upload(&words(LARGE_BYTES, 1)).unwrap();
        assert_eq!(card.num_waits(), 0);
        numbers.read().unwrap();
        card.finish().unwrap();
        assert_eq!(card.num_waits(), 2);
    }
}

#[test]
fn captured_work_runs_when_its_graph_is_queued_with_the_memory_of_then() {
    let Some(card) = card() else { return };
    let mut numbers = card.upload(&[1.0_f32, 3.0]).unwrap();
    let mut copy = card.zeros::<f32>(2).unwrap();
    let mut graph = card
        .capture(|| {
            double(card, &numbers)?;
            card.fill(copy.view_mut().slice(1..2), 7.0_f32)?;
            card.copy(numbers.view().slice(0..1), copy.view_mut().slice(0..1))
        })
        .unwrap();
    assert_eq!((numbers.read().unwrap(), copy.read().unwrap()), (vec![1.0, 3.0], vec![0.0, 0.0]));
    graph.queue().unwrap();
    graph.queue().unwrap();
    assert_eq!((numbers.read().unwrap(), copy.read().unwrap()), (vec![4.0, 12.0], vec![4.0, 7.0]));
    card.write(&[5.0, 6.0], numbers.view_mut()).unwrap();
    graph.queue().unwrap();
    assert_eq!((numbers.read().unwrap(), copy.read().unwrap()), (vec![10.0, 12.0], vec![10.0, 7.0]));
}

#[test]
fn a_capture_has_no_work_of_another_thread() {
    let Some(card) = card() else { return };
    let (own, other) = (card.upload(&[1.0_f32]).unwrap(), card.upload(&[1.0_f32]).unwrap());
    let mut graph = card
        .capture(|| {
            double(card, &own)?;
            let of_other = std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    double(card, &other)?;
                    let more = card.upload(&[9.0_f32])?;
                    Ok::<_, fulmar_core::Error>((other.read()?, more.read()?))
                });
                work.join().unwrap()
            })?;
            assert_eq!(of_other, (vec![2.0], vec![9.0]));
            double(card, &own)
        })
        .unwrap();
    graph.queue().unwrap();
    assert_eq!((own.read().unwrap(), other.read().unwrap()), (vec![4.0], vec![2.0]));
}

#[test]
fn a_capture_refuses_memory_of_its_own_copies_of_the_host_and_waits_and_all_works_on() {
    let Some(card) = card() else { return };
    let mut numbers = card.upload(&[3.0_f32]).unwrap();
    let mut inner = card.capture(|| double(card, &numbers)).unwrap();
    let refused = [
        card.capture(|| card.zeros::<f32>(1).map(drop)),
        card.capture(|| card.write(&[1.0], numbers.view_mut())),
        card.capture(|| card.upload(&[1.0_f32; 100_000]).map(drop)),
        card.capture(|| numbers.read().map(drop)),
        card.capture(|| card.finish()),
        card.capture(|| inner.queue()),
        card.capture(|| card.capture(|| Ok(())).map(drop)),
        // What was queued before an error is dropped with the capture.
        card.capture(|| {
            double(card, &numbers)?;
            card.queue("no_such_kernel", GRID, arguments![&numbers])
        }),
    ];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
    assert_eq!(numbers.read().unwrap(), [3.0]);
    // Memory that is dropped in a capture is freed outside of it.
    let (dropped, before) = (card.upload(&[0_u8; 64]).unwrap(), card.num_captures());
    let mut graph = card
        .capture(|| {
            drop(dropped);
            double(card, &numbers)
        })
        .unwrap();
    graph.queue().unwrap();
    assert_eq!(numbers.read().unwrap(), [6.0]);
    assert!(card.num_captures() > before && card.num_graphs() > 0 && card.num_kernels() > 0);
}

/// Copies numbers to new memory, doubles them there twice and copies them back.
fn quadruple(card: Card, numbers: &mut Buffer<f32>) -> Result<()> {
    for _ in 0..2 {
        let mut room = card.room::<f32>(numbers.len())?;
        card.copy(numbers.view(), room.view_mut())?;
        double(card, &room)?;
        card.copy(room.view(), numbers.view_mut())?;
    }
    Ok(())
}

#[test]
fn work_that_allocates_is_captured_after_a_run_in_its_pool() {
    let Some(card) = card() else { return };
    let (mut numbers, pool) = (card.upload(&[1.0_f32, 3.0]).unwrap(), GraphPool::default());
    let refused = pool.run(|| card.capture(|| quadruple(card, &mut numbers))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "a pool without memory: {refused}");
    pool.run(|| quadruple(card, &mut numbers)).unwrap();
    let mut graph = pool.run(|| card.capture(|| quadruple(card, &mut numbers))).unwrap();
    assert_eq!(numbers.read().unwrap(), [4.0, 12.0]);
    // Memory of another size is not that of the pool, nor is all memory outside of its work.
    let mut longer = card.upload(&[1.0_f32; 3]).unwrap();
    assert!(pool.run(|| card.capture(|| quadruple(card, &mut longer))).is_err());
    assert!(card.capture(|| quadruple(card, &mut numbers)).is_err());
    // The graph has its memory, whatever becomes of the pool and of what is allocated then.
    drop(pool);
    let other = card.upload(&[9.0_f32, 9.0]).unwrap();
    graph.queue().unwrap();
    graph.queue().unwrap();
    assert_eq!((numbers.read().unwrap(), other.read().unwrap()), (vec![64.0, 192.0], vec![9.0, 9.0]));
}

#[test]
fn a_pool_gives_no_memory_twice_and_is_that_of_one_thread() {
    // Elsewhere the driver may give an address again.
    let Some(card) = card().filter(|card| card.is_emulated()) else { return };
    let pool = GraphPool::default();
    let room = || card.room::<f32>(5).unwrap();
    let (kept, of_other) = pool.run(|| {
        let other = std::thread::scope(|scope| scope.spawn(room).join().unwrap());
        (room(), other)
    });
    let place = |buffer: &Buffer<f32>| buffer.view().address();
    let places = [place(&kept), place(&of_other)];
    drop(of_other);
    let next = pool.run(|| GraphPool::default().run(room));
    let next = [place(&next), place(&pool.run(room)), place(&room())];
    assert!(!next.iter().any(|place| places.contains(place)), "{places:?} {next:?}");
    // What outlives the work is given again once it is dropped.
    drop(kept);
    let again = pool.run(|| [room(), room()].map(|room| place(&room)));
    assert!(again.contains(&places[0]), "{places:?} {again:?}");
}

#[test]
fn the_memory_of_a_pool_is_freed_with_its_last_graph() {
    let name = "the_memory_of_a_pool_is_freed_with_its_last_graph";
    // In a process of its own, where no other test allocates; every call with that number works.
    if has_option(name, "FULMAR_EMULATED_FAIL_LAUNCH", "1001") {
        let card = card().unwrap();
        let (mut numbers, pool) = (card.zeros::<f32>(1 << 20).unwrap(), GraphPool::default());
        let before = card.used_bytes().unwrap();
        pool.run(|| quadruple(card, &mut numbers)).unwrap();
        let held = card.used_bytes().unwrap();
        let graph = pool.run(|| card.capture(|| quadruple(card, &mut numbers))).unwrap();
        assert!(held >= before + (4 << 20) && held < before + (8 << 20), "one room: {before} {held}");
        drop(pool);
        assert_eq!(card.used_bytes().unwrap(), held, "a graph holds its memory");
        drop(graph);
        assert_eq!(card.used_bytes().unwrap(), before);
    }
}

#[test]
fn memory_that_a_pool_cannot_have_is_out_of_memory_and_the_pool_works_on() {
    let Some(card) = card() else { return };
    let pool = GraphPool::default();
    let refused = pool.run(|| card.room::<f64>(card.gpu().memory_bytes as usize / 8 + 1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    let mut numbers = card.upload(&[2.0_f32]).unwrap();
    pool.run(|| quadruple(card, &mut numbers)).unwrap();
    assert_eq!(numbers.read().unwrap(), [8.0]);
}
