//! An image to JSON: what a guest returned, under the names that callers use, as text or as a value.

use std::cell::Cell;
use std::io;

use cofferdam_core::limits;
use cofferdam_core::secret::{Found, Scanner};
use serde::Serialize;
use serde_json::Value;

use super::image::{Image, Malformed};
use super::layout::{Kind, Layout, OperationLayout};
use super::size;
use super::written::Written;

/// What an operation returned.
#[derive(Debug, PartialEq)]
pub(crate) enum Returned<A> {
    /// Its value; `null` where its type has none.
    Value(A),
    /// The contract's `failure`, as JSON.
    Failure(Value),
}

/// Why an image does not become JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// See [`Malformed`].
    Malformed,
    /// The value would take more of the host's memory than any may.
    TooLarge,
    /// It would take more of the host's memory than the attempt has left.
    NoRoom,
    /// Its JSON text is longer than it may be: this many bytes at least.
    TooLong(u64),
}

impl From<Malformed> for Unreadable {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// What a call returned, from the image that lies at `base`, within `room` bytes of the host's memory.
pub(super) fn returned<A: Answer>(
    layout: &OperationLayout,
    image: &[u8],
    base: u32,
    room: &Cell<usize>,
) -> Result<Returned<A>, Unreadable> {
    let result = &layout.result;
    let Kind::Result(ok, err) = &result.kind else { return Err(Unreadable::Malformed) };
    let image = Image::new(image, base);
    let payload = |layout| Payload { layout, at: result.payload as usize, image, room };
    match image.get(0)? {
        [0] => Ok(Returned::Value(A::read(payload(ok.as_deref()))?)),
        [1] => Ok(Returned::Failure(payload(err.as_deref()).value()?)),
        _ => Err(Unreadable::Malformed),
    }
}

/// What a caller gets a result as.
pub trait Answer: Sized + Send {
    /// Reads it, within the limits of a result.
    fn read(payload: Payload<'_>) -> Result<Self, Unreadable>;

    /// The first secret that stands in its JSON text.
    fn find_secret(&self, scanner: &Scanner) -> Option<Found>;

    /// The length of its list `errors`.
    fn failed_items(&self) -> u64;

    /// Its compact JSON text, after what is there.
    fn append_to(&self, text: &mut Vec<u8>);

    /// The same from such a text.
    fn from_json(text: &[u8]) -> Option<Self>;
}

impl Answer for Value {
    fn read(payload: Payload<'_>) -> Result<Self, Unreadable> {
        let value = payload.value()?;
        match size::over(&value, limits::PAYLOAD_BYTES as u64) {
            None => Ok(value),
            Some(size) => Err(Unreadable::TooLong(size)),
        }
    }

    fn find_secret(&self, scanner: &Scanner) -> Option<Found> {
        scanner.find_in_json(self)
    }

    fn failed_items(&self) -> u64 {
        self.get("errors").and_then(Value::as_array).map_or(0, |errors| errors.len() as u64)
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        // Texts for keys, and memory that grows: nothing in it can fail.
        let _ = serde_json::to_writer(text, self);
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// JSON text, compact.
impl Answer for String {
    fn read(payload: Payload<'_>) -> Result<Self, Unreadable> {
        payload.text()
    }

    fn find_secret(&self, scanner: &Scanner) -> Option<Found> {
        scanner.find(self.as_bytes())
    }

    fn failed_items(&self) -> u64 {
        /// Reads past everything else, and keeps nothing.
        #[derive(serde::Deserialize)]
        struct Partial {
            errors: Vec<serde::de::IgnoredAny>,
        }
        serde_json::from_str::<Partial>(self).map_or(0, |partial| partial.errors.len() as u64)
    }

    fn append_to(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.as_bytes());
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}

/// A side of a result in an image; without a layout it is `null`.
#[derive(Clone, Copy)]
pub struct Payload<'i> {
    layout: Option<&'i Layout>,
    at: usize,
    image: Image<'i>,
    room: &'i Cell<usize>,
}

impl Payload<'_> {
    /// As a value, of at most [`limits::RESULT_BYTES`] of the host's memory.
    fn value(self) -> Result<Value, Unreadable> {
        let most = self.room.get().min(limits::RESULT_BYTES);
        let budget = Cell::new(Some(most));
        let written = self.write(&budget, serde_json::value::Serializer);
        let taken = most.saturating_sub(budget.get().unwrap_or(0));
        self.room.set(self.room.get().saturating_sub(taken));
        written.map_err(|()| match budget.get() {
            None if most < limits::RESULT_BYTES => Unreadable::NoRoom,
            None => Unreadable::TooLarge,
            Some(_) => Unreadable::Malformed,
        })
    }

    /// As text, of at most [`limits::PAYLOAD_BYTES`]. Growing it may take three times its length for a moment.
    fn text(self) -> Result<String, Unreadable> {
        let most = (self.room.get() / 3).min(limits::PAYLOAD_BYTES);
        let mut text = Bounded { text: Vec::new(), most, over: false };
        text.text.reserve(self.image.len().min(most));
        let written = self.write(&Cell::new(Some(usize::MAX)), &mut serde_json::Serializer::new(&mut text));
        self.room.set(self.room.get().saturating_sub(text.text.capacity()));
        match written {
            _ if text.over && most < limits::PAYLOAD_BYTES => Err(Unreadable::NoRoom),
            _ if text.over => Err(Unreadable::TooLong(limits::PAYLOAD_BYTES as u64 + 1)),
            Ok(()) => String::from_utf8(text.text).map_err(|_| Unreadable::Malformed),
            Err(()) => Err(Unreadable::Malformed),
        }
    }

    fn write<S: serde::Serializer>(self, budget: &Cell<Option<usize>>, to: S) -> Result<S::Ok, ()> {
        let written = Written { layout: self.layout, at: self.at, image: self.image, budget };
        written.serialize(to).map_err(drop)
    }
}

/// Text that stops growing at its limit.
struct Bounded {
    text: Vec<u8>,
    most: usize,
    over: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.most.saturating_sub(self.text.len()) {
            self.over = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
