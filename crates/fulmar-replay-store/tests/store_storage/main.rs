//! Rows on a server that several processes share, with Debian's server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod server;

use fulmar_core::limits::STORE_REPLY_BYTES_MAX;
use fulmar_core::{ErrorKind, Result, Rng};
use fulmar_replay::{
    ConditionalUpdate, ReplayBuffer, ReplayBufferOptions, SamplerOptions, SharedReplayBuffer, SharedWrites,
    Storage, TensorStorage, WriterOptions, check_storage,
};
use fulmar_replay_store::{StoreStorage, StoreStorageOptions};
use fulmar_tensor::{NonTensor, Ragged, Tensor, TensorDict};
use serde_json::json;
use server::{Server, Start, cutting, free_port, saying};

fn items(ids: &[i64]) -> TensorDict {
    let count = ids.len();
    let mut items = TensorDict::new(&[count]).unwrap();
    items.set("id", Tensor::from_slice(&[count], ids).unwrap()).unwrap();
    let wide = ids.iter().flat_map(|id| [*id; 5]).collect();
    items.set(["next", "wide"], Tensor::from_vec(&[count, 5], wide).unwrap()).unwrap();
    let names = ids.iter().map(|id| json!({ "name": format!("item {id}") })).collect();
    items.set("task", NonTensor::each(&[count], names).unwrap()).unwrap();
    let rows: Vec<Tensor> = ids
        .iter()
        .map(|id| Tensor::from_vec(&[*id as usize % 3], vec![*id; *id as usize % 3]).unwrap())
        .collect();
    items.set("tokens", Ragged::from_rows(&rows).unwrap()).unwrap();
    items
}

fn ids_of(items: &TensorDict) -> Vec<i64> {
    items.tensor("id").unwrap().to_vec().unwrap()
}

fn open(options: &StoreStorageOptions, shape: &[usize]) -> Result<StoreStorage> {
    StoreStorage::new(shape, options.clone())
}

fn buffer(options: &StoreStorageOptions, capacity: usize) -> ReplayBuffer {
    ReplayBuffer::new(Box::new(open(options, &[capacity]).unwrap()), ReplayBufferOptions::default()).unwrap()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn it_is_a_storage() {
    let Some(server) = Server::start(&[]) else { return };
    let named = |name: &str| StoreStorageOptions { name: name.to_owned(), db: 3, ..server.options() };
    check_storage(&mut open(&named("flat"), &[5]).unwrap()).unwrap();
    check_storage(&mut open(&named("lanes"), &[2, 3]).unwrap()).unwrap();
    assert_eq!(kind(open(&named("flat"), &[6])), Some(ErrorKind::Incompatible), "another shape");
    let mut other = TensorDict::new(&[1]).unwrap();
    other.set("id", Tensor::from_vec(&[1], vec![1.0_f32]).unwrap()).unwrap();
    let mut flat = open(&named("flat"), &[5]).unwrap();
    assert_eq!(kind(flat.set(&[0], &other)), Some(ErrorKind::Incompatible), "another dtype");
    assert_eq!(kind(open(&named("flat"), &[0])), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(open(&named(""), &[5])), Some(ErrorKind::Empty));
    let never = StoreStorageOptions { timeout_ms: 0, ..server.options() };
    assert_eq!(kind(open(&never, &[5])), Some(ErrorKind::OutOfRange));
}

#[test]
fn buffers_on_one_name_go_round_one_ring() {
    let Some(server) = Server::start(&[]) else { return };
    let mut memory =
        ReplayBuffer::new(Box::new(TensorStorage::new(&[7]).unwrap()), Default::default()).unwrap();
    let mut ours = [buffer(&server.options(), 7), buffer(&server.options(), 7)];
    let mut rng = Rng::new(3);
    for write in 0..40 {
        let (count, who) = (1 + rng.below(4).unwrap() as i64, rng.below(2).unwrap() as usize);
        let ids: Vec<i64> = (0..count).map(|at| 10 * write + at).collect();
        assert_eq!(ours[who].extend(&items(&ids)).unwrap(), memory.extend(&items(&ids)).unwrap());
        let other = &mut ours[1 - who];
        assert_eq!(other.sample(Some(3)).unwrap().items.batch_size(), [3]);
        assert_eq!(other.len(), memory.len());
        assert_eq!(other.read_all_in_order(None).unwrap(), memory.read_all_in_order(None).unwrap());
        assert_eq!(other.writer().state().unwrap(), memory.writer().state().unwrap());
        if write == 20 {
            ours[who].clear(true).unwrap();
            memory.clear(true).unwrap();
            let error = ours[1 - who].sample(Some(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
            memory =
                ReplayBuffer::new(Box::new(TensorStorage::new(&[7]).unwrap()), Default::default()).unwrap();
            ours = [buffer(&server.options(), 7), buffer(&server.options(), 7)];
        }
    }
    let again = buffer(&server.options(), 7);
    assert_eq!(again.read_all_in_order(None).unwrap(), memory.read_all_in_order(None).unwrap());
}

#[test]
fn priorities_learn_of_rows_that_others_write() {
    let Some(server) = Server::start(&[]) else { return };
    let options = ReplayBufferOptions {
        sampler: SamplerOptions::Prioritized { priorities: Default::default() },
        ..Default::default()
    };
    let mine = SharedReplayBuffer::new(Box::new(open(&server.options(), &[4]).unwrap()), options).unwrap();
    mine.extend(&items(&[1, 2])).unwrap();
    mine.update_priority(&[0, 1], &[0.0, 0.0]).unwrap();
    buffer(&server.options(), 4).extend(&items(&[3])).unwrap();
    let drawn = mine.sample(Some(64)).unwrap();
    assert!(drawn.rows.iter().filter(|row| **row == 2).count() > 60, "the new row has the default priority");
}

#[test]
fn writers_at_once_lose_no_row_and_tear_none() {
    let Some(server) = Server::start(&[]) else { return };
    const WRITERS: i64 = 4;
    const WRITES: i64 = 40;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let options = server.options();
            scope.spawn(move || {
                let mut buffer = buffer(&options, 10_000);
                for write in 0..WRITES {
                    let ids: Vec<i64> =
                        (0..1 + write % 3).map(|at| writer * 1000 + write * 10 + at).collect();
                    buffer.extend(&items(&ids)).unwrap();
                    let drawn = buffer.sample(Some(4)).unwrap().items;
                    assert_eq!(drawn.exclude(&["index".into()]), items(&ids_of(&drawn)), "rows are whole");
                }
            });
        }
    });
    let all = buffer(&server.options(), 10_000);
    let mut ids = ids_of(&all.read_all_in_order(None).unwrap());
    assert_eq!(all.writer().write_count(), ids.len() as u64);
    ids.sort_unstable();
    let wanted: Vec<i64> = (0..WRITERS)
        .flat_map(|writer| {
            (0..WRITES)
                .flat_map(move |write| (0..1 + write % 3).map(move |at| writer * 1000 + write * 10 + at))
        })
        .collect();
    assert_eq!(ids, wanted);
}

#[test]
fn a_connection_that_breaks_anywhere_leaves_a_write_whole_or_undone() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut num_whole, mut num_undone) = (0, 0);
    for cut in 0..240 {
        // The first bytes of either side are those of opening and refreshing.
        let (asked, told) =
            if cut % 2 == 0 { (150 + cut * 15, usize::MAX) } else { (usize::MAX, 400 + cut * 15) };
        let name = format!("cut {cut}");
        let direct = StoreStorageOptions { name: name.clone(), ..server.options() };
        let mut before = buffer(&direct, 8);
        before.extend(&items(&[1, 2, 3])).unwrap();
        let through = StoreStorageOptions { port: cutting(server.port, asked, told), ..direct.clone() };
        let written = open(&through, &[8])
            .and_then(|storage| ReplayBuffer::new(Box::new(storage), Default::default()))
            .and_then(|mut buffer| buffer.extend(&items(&[4, 5])));
        before.sample(Some(1)).unwrap();
        let ids = ids_of(&before.read_all_in_order(None).unwrap());
        match (ids.len(), written) {
            (3, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                num_undone += 1;
            }
            (5, written) => {
                assert_eq!(ids, [1, 2, 3, 4, 5]);
                num_whole += usize::from(written.is_err());
            }
            (len, written) => panic!("cut {cut}: {len} rows after {written:?}"),
        }
        assert_eq!(before.extend(&items(&[6])).unwrap(), [Some(ids.len())], "others continue after it");
    }
    assert!(num_undone > 10 && num_whole > 0, "both must happen: got {num_undone} and {num_whole}");
}

#[test]
fn a_server_that_dies_and_comes_back_empty_is_an_emptied_storage() {
    let Some(server) = Server::start(&[]) else { return };
    let (options, port) = (server.options(), server.port);
    let mut mine = buffer(&options, 6);
    mine.extend(&items(&[1, 2, 3, 4])).unwrap();
    drop(server);
    for _ in 0..2 {
        assert_eq!(kind(mine.extend(&items(&[5]))), Some(ErrorKind::Io));
        assert_eq!(kind(mine.sample(Some(2))), Some(ErrorKind::Io));
    }
    let Start::Ready(_server) = Server::start_on(port, &[]) else { panic!("port {port} was free") };
    assert_eq!(kind(mine.sample(Some(2))), Some(ErrorKind::Empty));
    assert_eq!(mine.extend(&items(&[7, 8])).unwrap(), [Some(0), Some(1)]);
    assert_eq!(ids_of(&buffer(&options, 6).read_all_in_order(None).unwrap()), [7, 8]);
}

#[test]
fn a_storage_that_was_cleared_without_its_server_owes_it() {
    let Some(server) = Server::start(&[]) else { return };
    let (options, port) = (server.options(), server.port);
    let mut storage = open(&options, &[4]).unwrap();
    storage.set(&[0], &items(&[1])).unwrap();
    drop(server);
    storage.clear();
    assert_eq!((storage.len(), kind(storage.refresh())), (0, Some(ErrorKind::Io)));
    let Start::Ready(_server) = Server::start_on(port, &[]) else { panic!("port {port} was free") };
    buffer(&options, 4).extend(&items(&[2, 3])).unwrap();
    storage.refresh().unwrap();
    assert!(open(&options, &[4]).unwrap().is_empty(), "the pending clear is sent");
}

#[test]
fn passwords_are_asked_for_and_never_shown() {
    let Some(server) = Server::start(&["--requirepass", "open sesame"]) else { return };
    for password in [None, Some("guess".to_owned())] {
        let error = open(&StoreStorageOptions { password, ..server.options() }, &[4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
        assert!(!error.detail().contains("guess"));
    }
    let options = StoreStorageOptions { password: Some("open sesame".to_owned()), ..server.options() };
    open(&options, &[4]).unwrap().set(&[0], &items(&[1])).unwrap();
    assert!(!format!("{options:?} {:?}", open(&options, &[4])).contains("sesame"));
    let named = StoreStorageOptions { username: Some("default".to_owned()), ..options };
    assert_eq!(open(&named, &[4]).unwrap().len(), 1);
}

#[test]
fn keys_of_others_are_refused_and_left() {
    let Some(server) = Server::start(&[]) else { return };
    let foreign = ["SET a 1", "HSET b field 1", "SET c:rows 1", "RPUSH d:writes 1", "SADD e:rows 1"];
    for command in foreign {
        server.tell(command);
        let name = command.split([' ', ':']).nth(1).unwrap().to_owned();
        let error = open(&StoreStorageOptions { name, ..server.options() }, &[4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{command}: {error}");
    }
    let options = StoreStorageOptions { name: "mine".to_owned(), ..server.options() };
    let mut mine = open(&options, &[4]).unwrap();
    mine.set(&[0], &items(&[1])).unwrap();
    for command in ["HSET mine revision many", "DEL mine", "SET mine 1"] {
        server.tell(command);
        assert_eq!(kind(mine.set(&[0], &items(&[2]))), Some(ErrorKind::Incompatible), "{command}");
    }
}

#[test]
fn replies_have_a_limit() {
    assert_eq!(StoreStorageOptions::default().reply_bytes_max, STORE_REPLY_BYTES_MAX);
    let Some(server) = Server::start(&[]) else { return };
    let mut storage = open(&server.options(), &[64]).unwrap();
    let rows: Vec<usize> = (0..64).collect();
    storage.set(&rows, &items(&(0..64).collect::<Vec<_>>())).unwrap();
    let bounded = |bytes| StoreStorageOptions { reply_bytes_max: bytes, ..server.options() };
    let read = |bytes| open(&bounded(bytes), &[64]).and_then(|storage| storage.get(&rows));
    let (mut refused, mut taken) = (2_000, 20_000);
    while taken - refused > 1 {
        let middle = (taken + refused) / 2;
        if read(middle).is_ok() { taken = middle } else { refused = middle }
    }
    assert_eq!(read(taken).unwrap(), storage.get(&rows).unwrap());
    assert_eq!(kind(read(refused)), Some(ErrorKind::LimitExceeded));
    let mut small = open(&bounded(2_000), &[64]).unwrap();
    let mut long = items(&[1]);
    long.set("task", NonTensor::each(&[1], vec![json!("x".repeat(3000))]).unwrap()).unwrap();
    assert_eq!(kind(small.set(&[0], &long)), Some(ErrorKind::LimitExceeded), "it could not be read again");
    assert_eq!(ids_of(&small.get(&[1]).unwrap()), [1], "a refusal is no end");
}

#[test]
fn servers_that_are_none_are_told_by_kind() {
    let on = |port| StoreStorageOptions { port, timeout_ms: 40, ..Default::default() };
    let error = open(&on(free_port()), &[4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let error = open(&on(saying(Vec::new(), true)), &[4]).unwrap_err();
    assert_eq!((error.kind(), error.detail().contains("within 40 ms")), (ErrorKind::Io, true), "{error}");
    let error = open(&on(saying(b"+OK\r\n$5\r\nab".to_vec(), false)), &[4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let error = open(&on(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false)), &[4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    let nowhere = StoreStorageOptions { host: "no such host".to_owned(), ..on(1) };
    assert_eq!(kind(open(&nowhere, &[4])), Some(ErrorKind::Io));
}

#[test]
fn forged_replies_are_refused() {
    let hello = b"+OK\r\n+OK\r\n+OK\r\n+none\r\n+none\r\n+none\r\n*2\r\n$2\r\n17\r\n$1\r\n5\r\n*8\r\n";
    let head = b"$23\r\nfulmar replay storage 1\r\n$1\r\n7\r\n$3\r\n[4]\r\n$26\r\n{\"format\":1,\"columns\":[]}  \r\n:3\r\n$1\r\n2\r\n$-1\r\n$-1\r\n";
    let whole = [&hello[..], &head[..]].concat();
    let root = Rng::new(5);
    for seed in 0..300 {
        let (mut reply, mut rng) = (whole.clone(), root.fork(seed));
        for _ in 0..=rng.below(3).unwrap() {
            let at = rng.below(reply.len() as u64).unwrap() as usize;
            match rng.below(4).unwrap() {
                0 => reply[at] = b"$*:+-0189\r"[rng.below(10).unwrap() as usize],
                1 => reply.truncate(at.max(1)),
                2 => drop(reply.splice(at..at, *b"99999999")),
                _ => reply[at] ^= 1 << rng.below(8).unwrap(),
            }
        }
        let options = StoreStorageOptions { port: saying(reply, false), ..Default::default() };
        // The reply may have been lost after an empty storage was made; no other content is possible.
        if let Ok(storage) = open(&options, &[4]) {
            assert!(storage.len() <= 4);
        }
    }
}

#[test]
fn conditional_updates_see_what_others_wrote_and_outlive_no_buffer() {
    let Some(server) = Server::start(&[]) else { return };
    let tracking = || {
        let writer = WriterOptions::RoundRobin { track_generations: true };
        let options = ReplayBufferOptions { writer, ..Default::default() };
        ReplayBuffer::new(Box::new(open(&server.options(), &[2]).unwrap()), options).unwrap()
    };
    let mut mine = tracking();
    mine.extend(&items(&[1, 2])).unwrap();
    let generations = mine.generations_of(&[0, 1]);
    let mut patch = TensorDict::new(&[2]).unwrap();
    patch.set("id", Tensor::from_vec(&[2], vec![30_i64, 40]).unwrap()).unwrap();
    let update = ConditionalUpdate {
        rows: &[0, 1],
        generations: &generations,
        patch: &patch,
        versions: None,
        require_newer: false,
    };
    tracking().extend(&items(&[3])).unwrap();
    assert_eq!(mine.update_if_present(&update).unwrap().updated, [false, true]);
    assert_eq!(ids_of(&mine.read_all_in_order(None).unwrap()), [3, 40]);
    assert_eq!(
        tracking().update_if_present(&update).unwrap().updated,
        [false, false],
        "another buffer's counts"
    );
}
