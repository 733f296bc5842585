//! Threads that share the tasks of a job.
//!
//! ```text
//! a thread with a job   opens it at a free place, takes its tasks, and waits for the helpers that are inside
//! a helper              takes tasks of any open job, its own part of them first; without one it watches for 50 us, then sleeps until it is woken
//! ```
//! The kernels of a step follow each other within microseconds, so helpers find the next job while they watch. To wake a thread
//! takes longer than many a kernel. The thread with the job works too, so a job never waits for a helper to begin.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::parallel::alone;

/// Jobs that are open at once; the thread with one more runs it alone.
const PLACES: usize = 16;

/// The time that a helper watches for a job before it sleeps.
const WATCH: Duration = Duration::from_micros(50);

/// Looks at the open jobs between two looks at the clock.
const LOOKS: usize = 32;

/// Looks at the helpers inside before the thread with the job lets other threads run.
const WAITS: u64 = 4096;

/// The threads. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    helpers: Mutex<Vec<JoinHandle<()>>>,
    num_helpers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shared {
    /// A bit for each place whose job has tasks to take and room for one more helper.
    open: AtomicU32,
    places: [Place; PLACES],
    num_asleep: AtomicUsize,
    asleep: Mutex<Vec<Thread>>,
    is_over: AtomicBool,
}

/// A place for a job, in a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Place {
    /// [`TAKEN`], [`OPEN`], how many more helpers may enter in units of [`ROOM`], and the number of those inside.
    state: AtomicU64,
    /// The number of tasks of each segment that are taken.
    taken: [AtomicUsize; SEGMENTS_MAX],
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A thread has its job here.
const TAKEN: u64 = 1 << 63;
/// Helpers may enter.
const OPEN: u64 = 1 << 62;
const ROOM: u64 = 1 << 32;
/// The bits of the number of helpers inside.
const INSIDE: u64 = ROOM - 1;
/// Most helpers of a job, and most segments.
const HELPERS_MAX: usize = SEGMENTS_MAX - 1;
const SEGMENTS_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Job {
    work: Work,
    num_tasks: usize,
    /// Tasks that a thread takes at once.
    at_once: usize,
    /// Parts of the tasks, one for each thread. A thread that has ended its own takes tasks of the next ones: tasks that follow each
    /// other read memory that does.
    segments: usize,
}

impl Job {
    fn segment(&self, index: usize) -> Range<usize> {
        let first = |index: usize| index * self.num_tasks / self.segments;
        first(index)..first(index + 1)
    }
}

/// The work of a task, which lives until no helper is inside.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn(usize) + Sync));

// SAFETY: the job is written while `TAKEN` alone is set, by the thread that set it, and read by that thread and by helpers inside.
unsafe impl Sync for Place {}
// SAFETY: the work may be called from any thread, and outlives the helpers that call it.
unsafe impl Send for Work {}

impl Team {
    /// Returns a team without helpers.
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default(), helpers: Mutex::default(), num_helpers: AtomicUsize::new(0) }
    }

    /// Calls `work` with each number below `num_tasks`, on this thread and up to `helpers_max` others, `at_once` numbers in sequence on
    /// a thread. A panic of `work` is one of this call.
    pub(crate) fn run(
        &self,
        helpers_max: usize,
        num_tasks: usize,
        at_once: usize,
        work: &(dyn Fn(usize) + Sync),
    ) {
        let helpers_max = helpers_max.min(HELPERS_MAX);
        self.hire(helpers_max);
        let shared = &*self.shared;
        let Some((index, place)) = shared.take_place() else {
            return alone(|| (0..num_tasks).for_each(work));
        };
        // SAFETY: this function returns when no helper is inside, and only helpers inside call the work.
        let work = Work(unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work)
        });
        let job = Job { work, num_tasks, at_once: at_once.max(1), segments: helpers_max + 1 };
        // SAFETY: this thread has taken the place, and no helper is inside.
        unsafe { *place.job.get() = Some(job) };
        place.taken[..job.segments].iter().for_each(|taken| taken.store(0, Relaxed));
        place.state.store(TAKEN | OPEN | (helpers_max as u64 * ROOM), Release);
        if helpers_max > 0 {
            shared.open.fetch_or(1 << index, SeqCst);
            shared.wake();
        }
        let own = catch_unwind(AssertUnwindSafe(|| alone(|| shared.take_tasks(index, place, 0))));
        shared.close(index, place);
        place.wait_for_helpers();
        // A helper that looked at the place for an earlier job may have closed this one before its bit was set.
        shared.open.fetch_and(!(1 << index), SeqCst);
        let panic = lock(&place.panic).take();
        place.state.store(0, Release);
        if let Some(panic) = own.err().or(panic) {
            resume_unwind(panic);
        }
    }

    /// Starts helpers until there are `count`, or the system has no more threads.
    fn hire(&self, count: usize) {
        if self.num_helpers.load(Relaxed) >= count {
            return;
        }
        let mut helpers = lock(&self.helpers);
        while helpers.len() < count {
            let shared = Arc::clone(&self.shared);
            let name = format!("fulmar-{}", helpers.len());
            let Ok(helper) = thread::Builder::new().name(name).spawn(move || shared.help()) else { break };
            helpers.push(helper);
        }
        self.num_helpers.store(count, Relaxed);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        for helper in lock(&self.helpers).drain(..) {
            helper.thread().unpark();
            // A helper's panic is one of the job's thread.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// Takes a free place.
    fn take_place(&self) -> Option<(usize, &Place)> {
        let is_taken = |place: &Place| place.state.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok();
        self.places.iter().enumerate().find(|(_, place)| is_taken(place))
    }

    /// Takes tasks, those of segment `own` first, until all are taken, and closes the job then.
    fn take_tasks(&self, index: usize, place: &Place, own: usize) {
        // SAFETY: this thread has taken the place or is inside, so no thread writes the job.
        let Some(job) = (unsafe { *place.job.get() }) else { return };
        for segment in (own..job.segments).chain(0..own) {
            let tasks = job.segment(segment);
            loop {
                let first = tasks.start + place.taken[segment].fetch_add(job.at_once, Relaxed);
                if first >= tasks.end {
                    break;
                }
                // SAFETY: the work lives while its thread waits for the helpers inside.
                (first..tasks.end.min(first + job.at_once)).for_each(|task| unsafe { (*job.work.0)(task) });
            }
        }
        self.close(index, place);
    }

    /// Lets no more helpers in.
    fn close(&self, index: usize, place: &Place) {
        if place.state.fetch_and(!OPEN, SeqCst) & OPEN != 0 {
            self.open.fetch_and(!(1 << index), SeqCst);
        }
    }

    /// Takes tasks of whatever job is open, until the team is over.
    fn help(&self) {
        let mut since = Instant::now();
        while !self.is_over.load(SeqCst) {
            if (0..LOOKS).any(|_| self.help_once()) {
                since = Instant::now();
            } else if since.elapsed() > WATCH {
                self.sleep();
                since = Instant::now();
            }
        }
    }

    /// Takes tasks of an open job; returns `false` without one that has room for one more.
    fn help_once(&self) -> bool {
        let open = self.open.load(SeqCst);
        for index in (0..PLACES).filter(|index| open & (1 << index) != 0) {
            let place = &self.places[index];
            let Some(room) = place.enter() else { continue };
            if room > 0 {
                self.wake();
            } else {
                self.open.fetch_and(!(1 << index), SeqCst);
            }
            if let Err(panic) =
                catch_unwind(AssertUnwindSafe(|| alone(|| self.take_tasks(index, place, room as usize + 1))))
            {
                self.close(index, place);
                lock(&place.panic).get_or_insert(panic);
            }
            place.state.fetch_sub(1, Release);
            return true;
        }
        std::hint::spin_loop();
        false
    }

    /// Wakes two helpers, each of which wakes two more if the job has room for them.
    fn wake(&self) {
        if self.num_asleep.load(SeqCst) > 0 {
            let mut asleep = lock(&self.asleep);
            let awake = asleep.len().saturating_sub(2);
            asleep.drain(awake..).for_each(|helper| helper.unpark());
            self.num_asleep.store(asleep.len(), SeqCst);
        }
    }

    /// Sleeps until it is woken, unless a job is open.
    fn sleep(&self) {
        let own = thread::current();
        let mut asleep = lock(&self.asleep);
        asleep.push(own.clone());
        self.num_asleep.store(asleep.len(), SeqCst);
        let is_needed = || self.open.load(SeqCst) != 0 || self.is_over.load(SeqCst);
        while !is_needed() && asleep.iter().any(|helper| helper.id() == own.id()) {
            drop(asleep);
            thread::park();
            asleep = lock(&self.asleep);
        }
        asleep.retain(|helper| helper.id() != own.id());
        self.num_asleep.store(asleep.len(), SeqCst);
    }
}

impl Default for Place {
    fn default() -> Self {
        let taken = [const { AtomicUsize::new(0) }; SEGMENTS_MAX];
        Self { state: AtomicU64::new(0), taken, job: UnsafeCell::new(None), panic: Mutex::new(None) }
    }
}

impl Place {
    /// Enters as a helper, if the job is open and has room; returns how many more may enter.
    fn enter(&self) -> Option<u64> {
        let mut state = self.state.load(Relaxed);
        while state & OPEN != 0 && room_of(state) > 0 {
            match self.state.compare_exchange_weak(state, state - ROOM + 1, Acquire, Relaxed) {
                Ok(_) => return Some(room_of(state) - 1),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Waits until no helper is inside.
    fn wait_for_helpers(&self) {
        for look in 1_u64.. {
            if self.state.load(Acquire) & INSIDE == 0 {
                return;
            }
            if look.is_multiple_of(WAITS) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

const fn room_of(state: u64) -> u64 {
    (state & !(TAKEN | OPEN)) / ROOM
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Runs a job and returns how often each task ran.
    fn counts(team: &Team, helpers_max: usize, num_tasks: usize, at_once: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..num_tasks).map(|_| AtomicUsize::new(0)).collect();
        team.run(helpers_max, num_tasks, at_once, &|task| {
            counts[task].fetch_add(1, Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn each_task_runs_once_whatever_the_number_of_helpers_and_of_jobs_at_once() {
        let (team, rounds) = (Team::new(), if cfg!(miri) { 3 } else { 500 });
        thread::scope(|scope| {
            for jobs in 0..3 {
                let team = &team;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let (num_tasks, at_once) = ((round * 7 + jobs) % 23, round % 4);
                        let found = counts(team, round % 5, num_tasks, at_once);
                        assert!(
                            found == vec![1; num_tasks],
                            "{num_tasks} tasks, {at_once} at once: {found:?}"
                        );
                    }
                });
            }
        });
        assert_eq!(
            team.shared.open.load(SeqCst),
            0,
            "helpers that watch for a job that has ended never sleep"
        );
    }

    #[test]
    fn a_job_has_no_more_helpers_than_it_asks_for() {
        let team = Team::new();
        counts(&team, 4, 8, 1);
        for helpers_max in 0..3 {
            let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            team.run(helpers_max, 200, 1, &|_| {
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                thread::yield_now();
                inside.fetch_sub(1, SeqCst);
            });
            assert!((1..=helpers_max + 1).contains(&most.into_inner()), "{helpers_max} helpers at most");
        }
    }

    #[test]
    fn helpers_take_part() {
        thread_local!(static IS_CALLER: Cell<bool> = const { Cell::new(false) });
        let (team, is_helped) = (Team::new(), AtomicBool::new(false));
        IS_CALLER.set(true);
        // The caller's first task ends when a helper has taken the other one.
        team.run(1, 2, 1, &|_| match IS_CALLER.get() {
            true => {
                while !is_helped.load(SeqCst) {
                    thread::yield_now();
                }
            }
            false => is_helped.store(true, SeqCst),
        });
        assert!(is_helped.into_inner());
    }

    #[test]
    fn a_panic_is_one_of_the_call_and_the_team_works_on() {
        let team = Team::new();
        for place in [0, 3, 19] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.run(2, 20, 1, &|task| assert!(task != place, "task {task}"));
            }));
            let message = caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("task {place}"));
            assert_eq!(counts(&team, 2, 20, 1), vec![1; 20]);
        }
    }

    #[test]
    fn a_job_without_a_place_runs_on_its_own_thread() {
        fn nested(team: &Team, depth: usize, total: &AtomicUsize) {
            team.run(1, 1, 1, &|_| {
                total.fetch_add(1, Relaxed);
                if depth > 0 {
                    nested(team, depth - 1, total);
                }
            });
        }
        let (team, total) = (Team::new(), AtomicUsize::new(0));
        nested(&team, PLACES + 4, &total);
        assert_eq!(total.into_inner(), PLACES + 5);
    }
}
