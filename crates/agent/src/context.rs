//! Contexts of the application: values recorded beside every event of a recording that wants them.
//!
//! The application registers a function for each. It is called on the event path, in whatever
//! thread and signal handler the event is recorded, and must itself be fit for that.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use tompion_layout::record;
use tompion_ring::producer::{MAX_TAILS, Tail};

/// Maximum number of contexts of an application.
pub const MAX_CONTEXTS: usize = 8;
/// Maximum length of a name, `provider:name`, in bytes.
const MAX_NAME: usize = 63;
/// Maximum length of a context's text in bytes.
pub const MAX_TEXT: usize = 64;

/// Type of a context's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `int64_t get(void)`
    Integer = 1,
    /// `size_t get(char *buffer, size_t size)`: writes at most `size` bytes and returns how many.
    Text = 2,
}

type GetInteger = extern "C" fn() -> i64;
type GetText = extern "C" fn(*mut c_char, usize) -> usize;

/// Registered context; entries are only ever added.
struct Context {
    /// The function; null after the application has unregistered it.
    get: AtomicPtr<c_void>,
    ty: AtomicU32,
    name: AtomicPtr<c_char>,
}

static CONTEXTS: [Context; MAX_CONTEXTS] = [const {
    Context {
        get: AtomicPtr::new(ptr::null_mut()),
        ty: AtomicU32::new(0),
        name: AtomicPtr::new(ptr::null_mut()),
    }
}; MAX_CONTEXTS];

/// Recordings that want the application's contexts with their events, one bit each.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Sets whether a recording wants the contexts.
pub fn set_wanted(slot: usize, wanted: bool) {
    // Ordering: only changed under the registry's lock, before the recording takes an event.
    let others = WANTED.load(Ordering::Relaxed) & !(1 << slot);
    WANTED.store(others | u32::from(wanted) << slot, Ordering::Relaxed);
}

/// Recordings that want the contexts, one bit each.
pub fn wanted() -> u32 {
    WANTED.load(Ordering::Relaxed)
}

/// First event number of each number of contexts, in order: number << 8
/// contexts.
///
/// A record has the contexts that its event's description names. So when contexts are added, events
/// get new numbers and descriptions. A thread that still records under an old number adds the
/// contexts of that time.
static EPOCHS: [AtomicU32; MAX_CONTEXTS + 1] = [const { AtomicU32::new(0) }; MAX_CONTEXTS + 1];

/// Gives events with numbers from `first` on this many contexts.
pub fn begin_epoch(first: u32, contexts: u32) {
    // Ordering: only changed under the registry's lock; no event has such a number yet.
    let place = EPOCHS.iter().skip(1).find(|place| {
        let epoch = place.load(Ordering::Relaxed);
        epoch == 0 || epoch & 0xff == contexts
    });
    if let Some(place) = place {
        place.store(first << 8 | contexts, Ordering::Release);
    }
}

/// Number of contexts of the event of a number.
fn count_at(number: u32) -> u32 {
    // Ordering: pairs with the release store in `begin_epoch`, which came before any event had the
    // number.
    let epochs = EPOCHS.iter().map(|place| place.load(Ordering::Acquire));
    epochs.filter(|epoch| epoch >> 8 <= number).max().unwrap_or(0) & 0xff
}

/// Number of entries of [`CONTEXTS`].
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Number of contexts.
pub fn count() -> u32 {
    // Ordering: pairs with the release store in `add`: a reader that sees the number sees the
    // entries.
    COUNT.load(Ordering::Acquire).min(MAX_CONTEXTS as u32)
}

fn ty(context: &Context) -> Type {
    // Ordering: set before `COUNT` was raised over the entry.
    if context.ty.load(Ordering::Relaxed) == Type::Text as u32 { Type::Text } else { Type::Integer }
}

/// Names and types of the first `count` contexts.
pub fn all(count: u32) -> impl Iterator<Item = (&'static str, Type)> {
    CONTEXTS.iter().take(count as usize).map(|context| {
        // Ordering: as in `ty`.
        let name = context.name.load(Ordering::Relaxed);
        // SAFETY: a leaked, NUL-terminated copy of a name that was checked to be text.
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
        (name, ty(context))
    })
}

/// The number and type of a context.
pub fn find(name: &str) -> Option<(u16, Type)> {
    let at = all(count()).position(|(known, _)| known == name)?;
    Some((at as u16, ty(&CONTEXTS[at])))
}

/// The value of an integer context in the calling thread.
pub fn number(index: u16) -> Option<i64> {
    let context = CONTEXTS.get(usize::from(index)).filter(|context| ty(context) == Type::Integer)?;
    // Ordering: pairs with the release store in `register`; a null one was unregistered.
    let get = context.get.load(Ordering::Acquire);
    if get.is_null() {
        return None;
    }
    // SAFETY: the application registered a function of this type.
    let get: GetInteger = unsafe { std::mem::transmute(get) };
    Some(get())
}

/// Writes the value of a text context in the calling thread; returns its length.
pub fn text(index: u16, buffer: &mut [u8; MAX_TEXT]) -> Option<usize> {
    let context = CONTEXTS.get(usize::from(index)).filter(|context| ty(context) == Type::Text)?;
    // Ordering: as in `number`.
    let get = context.get.load(Ordering::Acquire);
    if get.is_null() {
        return None;
    }
    // SAFETY: the application registered a function of this type.
    let get: GetText = unsafe { std::mem::transmute(get) };
    Some(get(buffer.as_mut_ptr().cast(), buffer.len()).min(buffer.len()))
}

/// Image and tails of a record with the contexts of the calling thread.
pub struct EventWithContexts {
    fixed: [u64; (record::MAX_IMAGE + MAX_CONTEXTS * 8) / 8 + 1],
    fixed_len: usize,
    texts: [[u8; MAX_TEXT]; MAX_CONTEXTS],
    tails: [Tail; MAX_TAILS],
    tail_count: usize,
}

impl EventWithContexts {
    /// Adds the contexts to an event's image and tails; none if the event is too large for that.
    #[inline(always)]
    pub fn new(number: u32, image: &[u8], tails: &[Tail]) -> Option<Self> {
        let contexts = count_at(number) as usize;
        if image.len() > record::MAX_IMAGE || tails.len() + contexts > MAX_TAILS {
            return None;
        }
        let mut extended = Self {
            fixed: [0; (record::MAX_IMAGE + MAX_CONTEXTS * 8) / 8 + 1],
            fixed_len: 0,
            texts: [[0; MAX_TEXT]; MAX_CONTEXTS],
            tails: [Tail { data: ptr::null(), size: 0 }; MAX_TAILS],
            tail_count: tails.len(),
        };
        extended.push(image);
        extended.tails[..tails.len()].copy_from_slice(tails);
        for (index, context) in CONTEXTS.iter().enumerate().take(contexts) {
            match ty(context) {
                Type::Integer => extended.push(&number_or_zero(index).to_le_bytes()),
                Type::Text => {
                    let size = text(index as u16, &mut extended.texts[index]).unwrap_or(0);
                    extended.push(&(size as u32).to_le_bytes());
                    extended.tails[extended.tail_count].size = size;
                    // The text's index; its address is not known before the structure has its final
                    // place.
                    extended.tails[extended.tail_count].data = ptr::without_provenance(index);
                    extended.tail_count += 1;
                }
            }
        }
        Some(extended)
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = self.fixed.as_mut_ptr().cast::<u8>();
        // SAFETY: the image and eight bytes for each context fit into the array, which is this
        // structure's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(self.fixed_len), bytes.len()) };
        self.fixed_len += bytes.len();
    }

    /// The record's image and tails. `own_tails` is how many of them the event had.
    pub fn parts(&mut self, own_tails: usize) -> (*const u8, usize, &[Tail]) {
        for tail in &mut self.tails[own_tails..self.tail_count] {
            let index = tail.data.addr();
            tail.data = self.texts[index].as_ptr();
        }
        (self.fixed.as_ptr().cast(), self.fixed_len, &self.tails[..self.tail_count])
    }
}

fn number_or_zero(index: usize) -> i64 {
    number(index as u16).unwrap_or(0)
}

/// Result of registering a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// A context was added: events need new descriptions.
    Added,
    /// A known context has another function.
    Replaced,
    /// The name or the type is invalid, or there are too many.
    Rejected,
}

/// Registers a context, or replaces the function of one. The caller holds the registry's lock.
pub fn register(name: &str, kind: u32, get: *mut c_void) -> Registration {
    let kind = match kind {
        1 => Type::Integer,
        2 => Type::Text,
        _ => return Registration::Rejected,
    };
    match find(name) {
        Some((index, known)) if known == kind => {
            // Ordering: pairs with the acquire loads in `number` and `text`.
            CONTEXTS[usize::from(index)].get.store(get, Ordering::Release);
            Registration::Replaced
        }
        None if is_name(name) && add(name, kind, get) => Registration::Added,
        _ => Registration::Rejected,
    }
}

/// `provider:name`, two words of letters, digits and `_`.
fn is_name(name: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty()
            && !word.starts_with(|first: char| first.is_ascii_digit())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.len() <= MAX_NAME
        && name.split_once(':').is_some_and(|(provider, name)| word(provider) && word(name))
}

fn add(name: &str, kind: Type, get: *mut c_void) -> bool {
    let index = count() as usize;
    let (Some(context), Ok(name)) = (CONTEXTS.get(index), std::ffi::CString::new(name)) else { return false };
    // Ordering: all of it is published by the store of the number.
    context.get.store(get, Ordering::Relaxed);
    context.ty.store(kind as u32, Ordering::Relaxed);
    context.name.store(name.into_raw(), Ordering::Relaxed);
    // Ordering: pairs with the acquire load in `count`.
    COUNT.store(index as u32 + 1, Ordering::Release);
    true
}
