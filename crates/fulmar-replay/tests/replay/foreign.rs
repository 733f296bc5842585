//! Parts in another language that call back into their buffer.

use std::sync::{Arc, Mutex, OnceLock};

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::{
    Callee, ForeignSampler, ForeignStorage, ForeignWriter, LastingRows, Mailbox, ReplayBufferOptions,
    Sampler, SharedReplayBuffer, SharedStorage, SharedWrites, Storage, TensorStorage, WeakReplayBuffer,
    Writer,
};
use fulmar_tensor::{Tensor, TensorDict};

use crate::plain_rows::PlainRows;

fn items(count: usize) -> TensorDict {
    let mut items = TensorDict::new(&[count]).unwrap();
    items.set("id", Tensor::from_vec(&[count], (0..count as i64).collect()).unwrap()).unwrap();
    items
}

/// Returns every operation of a buffer and its storage, by name.
fn asked(buffer: &SharedReplayBuffer) -> Vec<(&'static str, Result<()>)> {
    let path = std::env::temp_dir().join("fulmar-never-written");
    vec![
        ("len", buffer.len().map(drop)),
        ("isEmpty", buffer.is_empty().map(drop)),
        ("stats", buffer.stats().map(drop)),
        ("clear", buffer.clear(false)),
        ("extend", buffer.extend(&items(1)).map(drop)),
        ("sample", buffer.sample(Some(1)).map(drop)),
        ("nextBatch", buffer.next_batch().map(drop)),
        ("updatePriority", buffer.update_priority(&[0], &[1.0])),
        ("state", buffer.state().map(drop)),
        ("dumps", buffer.dumps(&path, &PlainRows)),
        ("loads", buffer.loads(&path, &PlainRows)),
        ("with", buffer.with(|_| Ok(()))),
    ]
}

/// Returns the operations of the buffer's storage, and of another buffer over it.
fn asked_beside(buffer: &SharedReplayBuffer, other: &SharedReplayBuffer) -> Vec<(&'static str, Result<()>)> {
    let mut storage = buffer.storage().clone();
    vec![
        ("checkFree", storage.check_free()),
        ("get", storage.get(&[0]).map(drop)),
        ("set", storage.set(&[0], &items(1))),
        ("refresh", storage.refresh()),
        ("noteWriter", storage.note_writer(0, 0)),
        ("other buffer's len", other.len().map(drop)),
        ("other buffer's sample", other.sample(Some(1)).map(drop)),
    ]
}

/// A part that calls every operation of its buffer whenever it is called, and records those that succeed.
#[derive(Default)]
struct Curious {
    buffers: OnceLock<[WeakReplayBuffer; 2]>,
    /// The called operations, and every result that was not a typed error.
    called: Mutex<Vec<String>>,
    answered: Mutex<Vec<String>>,
    mailbox: Mailbox,
    /// `true` if the storage is in the middle of an operation when the part is called.
    holds_storage: bool,
}

impl Curious {
    fn asks(&self, operation: &str) {
        let Some([Some(buffer), Some(other)]) =
            self.buffers.get().map(|buffers| buffers.each_ref().map(WeakReplayBuffer::upgrade))
        else {
            return;
        };
        self.called.lock().unwrap().push(operation.to_owned());
        buffer.copy_ahead();
        let beside = if self.holds_storage { asked_beside(&buffer, &other) } else { Vec::new() };
        for (name, answer) in asked(&buffer).into_iter().chain(beside) {
            match answer {
                Err(error) if error.kind() == ErrorKind::Forbidden || name == "loads" => {}
                other => self.answered.lock().unwrap().push(format!("{operation}: {name}: {other:?}")),
            }
        }
    }
}

/// The part as a callee of the buffer.
struct Part(Arc<Curious>);

impl Callee for Part {
    fn call(&self, operation: &str, numbers: &[f64]) -> Result<()> {
        let part = &self.0;
        let given = part.mailbox.take_items();
        part.asks(operation);
        match operation {
            "get" => part.mailbox.put_items(items(numbers.len())),
            "sample" => part.mailbox.put_numbers(vec![0.0; numbers[1] as usize]),
            "writer.plan" => {
                let count = given.map_or(0, |items| items.batch_size()[0]);
                part.mailbox.put_numbers((0..count).map(|row| row as f64).collect());
            }
            "state" | "writer.state" => part.mailbox.put_text("null".to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// Uses a buffer with the part in every way, and returns the operations for which the part was called.
fn used(part: &Arc<Curious>, buffer: &SharedReplayBuffer, other: &SharedReplayBuffer) -> Vec<String> {
    part.buffers.set([buffer.downgrade(), other.downgrade()]).ok().unwrap();
    buffer.extend(&items(2)).unwrap();
    buffer.sample(Some(2)).unwrap();
    buffer.next_batch().unwrap().batch().unwrap();
    buffer.update_priority(&[0], &[2.0]).unwrap();
    buffer.with(|buffer| Ok(buffer.ran_out())).unwrap();
    buffer.with(|buffer| buffer.batch_of(&[0]).map(drop)).unwrap();
    let state = buffer.state().unwrap();
    buffer.restore(&state).unwrap();
    buffer.clear(false).unwrap();
    let answered = part.answered.lock().unwrap().clone();
    assert!(answered.is_empty(), "{answered:#?}");
    let mut called = part.called.lock().unwrap().clone();
    called.sort();
    called.dedup();
    called
}

fn options() -> ReplayBufferOptions {
    ReplayBufferOptions { batch_size: Some(1), prefetch: 2, ..Default::default() }
}

fn part(holds_storage: bool) -> Arc<Curious> {
    Arc::new(Curious { holds_storage, ..Default::default() })
}

#[test]
fn a_storage_that_asks_its_buffer_gets_a_typed_error_at_once() {
    let part = part(true);
    let storage = ForeignStorage::new(4, part.mailbox.clone(), Box::new(Part(part.clone()))).unwrap();
    let storage = SharedStorage::new(Box::new(storage));
    let buffer = SharedReplayBuffer::over(storage.clone(), options()).unwrap();
    let other = SharedReplayBuffer::over(storage, options()).unwrap();
    assert_eq!(used(&part, &buffer, &other), ["clear", "get", "set"]);
    // Another thread waits as usual.
    assert_eq!(std::thread::spawn(move || buffer.len()).join().unwrap(), Ok(0));
}

#[test]
fn a_sampler_or_writer_that_asks_its_buffer_gets_a_typed_error_at_once() {
    for of_sampler in [true, false] {
        let part = part(false);
        let mailbox = part.mailbox.clone();
        let storage = SharedStorage::new(Box::new(TensorStorage::new(&[4]).unwrap()));
        let sampler = of_sampler.then(|| {
            Box::new(ForeignSampler::new(mailbox.clone(), Box::new(Part(part.clone())))) as Box<dyn Sampler>
        });
        let writer = (!of_sampler).then(|| {
            Box::new(ForeignWriter::new(4, mailbox.clone(), Box::new(Part(part.clone()))).unwrap())
                as Box<dyn Writer>
        });
        let buffer = SharedReplayBuffer::with_parts(storage.clone(), sampler, writer, options()).unwrap();
        let other = SharedReplayBuffer::over(storage, options()).unwrap();
        let called = used(&part, &buffer, &other);
        if of_sampler {
            let all = ["check", "clear", "extend", "ranOut", "restore", "sample", "state", "updatePriority"];
            assert_eq!(called, all);
        } else {
            let all = ["writer.clear", "writer.commit", "writer.plan", "writer.restore", "writer.state"];
            assert_eq!(called, all);
        }
    }
}

#[test]
fn what_a_part_is_refused_reaches_the_caller_as_an_error_of_the_part() {
    struct Measures(Arc<OnceLock<WeakReplayBuffer>>);
    impl Callee for Measures {
        fn call(&self, _: &str, _: &[f64]) -> Result<()> {
            let buffer = self.0.get().and_then(WeakReplayBuffer::upgrade);
            match buffer.map(|buffer| buffer.len()) {
                Some(Err(error)) => Err(Error::new(ErrorKind::UserCode, error.detail().to_owned())),
                _ => Ok(()),
            }
        }
    }
    let own = Arc::new(OnceLock::new());
    let storage = ForeignStorage::new(4, Mailbox::default(), Box::new(Measures(own.clone()))).unwrap();
    let buffer = SharedReplayBuffer::new(Box::new(storage), Default::default()).unwrap();
    own.set(buffer.downgrade()).unwrap();
    let error = buffer.extend(&items(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UserCode);
    assert!(error.detail().contains("must not be used by a function that it is calling"), "{error}");
    assert_eq!(buffer.len(), Ok(0));
}
