//! The interface of builds without CUDA.

use std::convert::Infallible;
use std::mem::MaybeUninit;

use fulmar_core::{Error, ErrorKind, Result};

use crate::Gpu;
use crate::card::{Lane, Opened};

/// Returns the error for a build without CUDA.
///
/// # Errors
/// `Unavailable`, always.
pub fn gpus() -> Result<Vec<Gpu>> {
    let detail = "CUDA must be built in: this build does not include it";
    Err(Error::new(ErrorKind::Unavailable, detail))
}

/// No GPU is ever open: the type has no values, so the compiler leaves out all code for one.
#[derive(Clone, Copy)]
pub struct Handle(Infallible);

pub fn check() -> Result<()> {
    gpus().map(drop)
}

pub fn card(handle: Handle) -> &'static Opened {
    match handle.0 {}
}

pub fn opened(card: &'static Opened) -> Handle {
    match card.context.0 {}
}

/// See `context.rs`.
pub struct Context(Infallible);
pub struct Span(Infallible);
pub struct Graph(Infallible);
pub struct Function {
    pub parameter_bytes: Vec<usize>,
    pub shared_bytes_max: u32,
}

/// See `context.rs`.
#[derive(Debug)]
pub struct Failure {
    pub function: &'static str,
    pub status: String,
    pub is_out_of_memory: bool,
    pub is_fatal: bool,
}

type Outcome<T> = std::result::Result<T, Failure>;

macro_rules! never {
    ($(fn $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl Context {
            $(pub fn $name(&self, $(_: $argument),*) -> Outcome<$result> {
                match self.0 {}
            })*
        }
    };
}

never! {
    fn bind() -> ();
    fn allocate(usize, Lane) -> u64;
    fn free(u64) -> ();
    fn trim() -> ();
    fn free_bytes() -> usize;
    fn used_bytes() -> usize;
    fn fill(u64, u32, usize, usize) -> ();
    fn upload(u64, &[u8], Lane) -> ();
    fn copy(u64, u64, usize) -> ();
    fn finish() -> ();
    fn function(&str) -> Function;
    fn allow_shared(&mut Function, u32) -> ();
    fn launch(&Function, (u32, u32), u32, u32, &mut [u64]) -> ();
    fn repeat(&mut Graph) -> ();
}

impl Context {
    pub fn open(_: u32, _: &[u8]) -> Outcome<Self> {
        let status = "no driver in this build".to_owned();
        Err(Failure { function: "open", status, is_out_of_memory: false, is_fatal: false })
    }

    pub fn download(&self, _: &mut [MaybeUninit<u8>], _: u64) -> Outcome<()> {
        match self.0 {}
    }

    pub fn capture<E>(
        &self,
        _: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        match self.0 {}
    }

    pub fn timed<E>(&self, _: impl FnOnce() -> std::result::Result<(), E>) -> std::result::Result<Span, E> {
        match self.0 {}
    }
}

impl Span {
    pub fn milliseconds(self) -> Outcome<f32> {
        match self.0 {}
    }
}
