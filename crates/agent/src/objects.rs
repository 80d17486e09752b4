//! Executables and shared libraries that are loaded, for readers that turn addresses into names.
//!
//! A library that records addresses (libtompion-func.so) notes in which object they lie, by
//! `tompion_object_v1`. Every recording gets records of them, with the names and fields of LTTng,
//! in the catalog, where no ring overwrites them: of all when it begins (`lttng_ust_statedump`),
//! and of each that is new afterwards (`lttng_ust_lib`).
//!
//! Unloading is not recorded. A later record of a range of addresses replaces an earlier one, and
//! an object that comes back to its place is known, so plugins that come and go cost nothing. When
//! there is no more room for objects that replace each other, one record for each range says so.

use std::{
    ffi::{CStr, OsStr, c_char},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use tompion_schema::{Event, Field, Integer, Kind, Level, Type};

/// Maximum length of a recorded path, in bytes.
const MAX_PATH: usize = 4096;
/// Maximum length of a recorded build id, in bytes.
const MAX_BUILD_ID: usize = 64;

/// An object as its finder describes it.
#[repr(C)]
#[derive(Debug)]
pub struct LoadedObject {
    /// First address.
    pub begin: u64,
    /// Bytes to behind its last one.
    pub size: u64,
    /// Its file, as the dynamic linker calls it.
    pub path: *const c_char,
    /// The GNU build id, or null.
    pub build_id: *const u8,
    /// Its bytes.
    pub build_id_size: u32,
    /// Whether it could be loaded anywhere; else its addresses are those of its file.
    pub position_independent: u32,
}

/// An object in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    begin: u64,
    size: u64,
    path: Vec<u8>,
    build_id: Vec<u8>,
    position_independent: bool,
}

/// The loaded objects, no two of which overlap.
#[derive(Debug)]
pub struct Objects(Vec<Object>);

/// A record and the description of its event.
#[derive(Debug)]
pub struct Record {
    /// Description of the event.
    pub description: Vec<u8>,
    /// Fixed part and tails.
    pub payload: Vec<u8>,
}

/// Provider and name of the events that describe objects.
#[derive(Clone, Copy, Debug)]
pub struct Occasion {
    provider: &'static str,
    object: &'static str,
}

/// An object that was loaded when the recording began.
pub const FOUND: Occasion = Occasion { provider: "lttng_ust_statedump", object: "bin_info" };
/// An object that has been loaded since.
pub const LOADED: Occasion = Occasion { provider: "lttng_ust_lib", object: "load" };

impl Objects {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns all objects.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.0.iter()
    }

    /// Adds an object in place of those that it overlaps. None if it is known.
    pub fn add(&mut self, object: Object) -> Option<&Object> {
        if self.0.contains(&object) {
            return None;
        }
        let place = object.range();
        self.0.retain(|known| known.range().start >= place.end || known.range().end <= place.start);
        self.0.push(object);
        self.0.last()
    }
}

impl Object {
    /// Copies the description of an object.
    ///
    /// # Safety
    /// Pointers are null or valid, for as many bytes as they say; the path ends with a NUL.
    pub unsafe fn new(loaded: &LoadedObject) -> Self {
        // SAFETY: as the caller promises.
        let path = match unsafe { loaded.path.as_ref() } {
            // SAFETY: as the caller promises.
            Some(path) => unsafe { CStr::from_ptr(path) }.to_bytes(),
            None => &[],
        };
        let size = (loaded.build_id_size as usize).min(MAX_BUILD_ID);
        let build_id = if loaded.build_id.is_null() {
            &[]
        } else {
            // SAFETY: as the caller promises.
            unsafe { std::slice::from_raw_parts(loaded.build_id, size) }
        };
        Self {
            begin: loaded.begin,
            size: loaded.size,
            path: absolute(path),
            build_id: build_id.to_vec(),
            position_independent: loaded.position_independent != 0,
        }
    }

    /// Records that describe the object.
    pub fn records(&self, occasion: Occasion) -> Vec<Record> {
        let mut records = vec![self.record(occasion)];
        if !self.build_id.is_empty() {
            records.push(self.build_id_record(occasion));
        }
        records
    }

    /// Addresses of the object.
    pub fn range(&self) -> Range<u64> {
        self.begin..self.begin.saturating_add(self.size)
    }

    /// Record that invalidates the object's range: something without a name is there.
    pub fn unknown_object(&self) -> Record {
        Self { path: Vec::new(), build_id: Vec::new(), ..self.clone() }.record(LOADED)
    }

    fn record(&self, occasion: Occasion) -> Record {
        let (number, flag) = (Type::Integer(Integer::unsigned(64)), Type::Integer(Integer::unsigned(8)));
        let fields = vec![
            base_address(),
            Field::new("memsz", number),
            Field::new("path", Type::String),
            Field::new("is_pic", flag.clone()),
            Field::new("has_build_id", flag.clone()),
            Field::new("has_debug_link", flag),
        ];
        let flags = [u8::from(self.position_independent), u8::from(!self.build_id.is_empty()), 0];
        let payload = [
            &self.begin.to_le_bytes()[..],
            &self.size.to_le_bytes(),
            &(self.path.len() as u32).to_le_bytes(),
            &flags,
            &self.path,
        ];
        Record { description: describe(occasion, occasion.object, fields), payload: payload.concat() }
    }

    fn build_id_record(&self, occasion: Occasion) -> Record {
        let fields = vec![base_address(), Field::new("build_id", Type::Sequence(Integer::hex(8)))];
        let size = self.build_id.len() as u32;
        let payload = [&self.begin.to_le_bytes()[..], &size.to_le_bytes(), &self.build_id];
        Record { description: describe(occasion, "build_id", fields), payload: payload.concat() }
    }
}

fn base_address() -> Field {
    Field::new("baddr", Type::Integer(Integer::hex(64)))
}

fn describe(occasion: Occasion, name: &str, fields: Vec<Field>) -> Vec<u8> {
    tompion_schema::encode(&Event {
        provider: occasion.provider.into(),
        name: name.into(),
        level: Level::DEFAULT,
        kind: Kind::Instant,
        init: true,
        format: None,
        attributes: Default::default(),
        fields,
    })
}

/// The path from the root, if it is a path and not a mere name, like `linux-vdso.so.1`.
fn absolute(path: &[u8]) -> Vec<u8> {
    let relative = path.contains(&b'/') && !path.starts_with(b"/");
    let whole = if relative { std::path::absolute(Path::new(OsStr::from_bytes(path))).ok() } else { None };
    let mut path = whole.map_or_else(|| path.to_vec(), |path| path.as_os_str().as_bytes().to_vec());
    path.truncate(MAX_PATH);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(begin: u64, size: u64, path: &str) -> Object {
        let path = path.as_bytes().to_vec();
        Object { begin, size, path, build_id: vec![1, 2], position_independent: true }
    }

    #[test]
    fn an_object_is_recorded_once_and_replaces_older_ones() {
        let mut objects = Objects::new();
        assert!(objects.add(object(0x1000, 0x1000, "a")).is_some());
        assert!(objects.add(object(0x2000, 0x1000, "b")).is_some());
        assert!(objects.add(object(0x1000, 0x1000, "a")).is_none());
        assert!(objects.add(object(0x1800, 0x900, "c")).is_some());
        assert_eq!(objects.iter().map(|object| object.begin).collect::<Vec<_>>(), [0x1800]);
        assert!(objects.add(object(0x1000, 0x1000, "a")).is_some());
    }

    #[test]
    fn records_fit_their_descriptions() {
        let records = object(0x1000, 0x2000, "/lib/a.so").records(FOUND);
        let names: Vec<String> = records
            .iter()
            .map(|record| {
                let event = tompion_schema::decode(&record.description).unwrap();
                let tails = if event.name == "build_id" { 2 } else { 9 };
                assert_eq!(record.payload.len(), event.fixed_size() + tails);
                assert!(event.init);
                event.full_name()
            })
            .collect();
        assert_eq!(names, ["lttng_ust_statedump:bin_info", "lttng_ust_statedump:build_id"]);
    }

    #[test]
    fn relative_paths_become_absolute() {
        assert_eq!(absolute(b"linux-vdso.so.1"), b"linux-vdso.so.1");
        assert_eq!(absolute(b"/lib/a.so"), b"/lib/a.so");
        let here = std::env::current_dir().unwrap().join("a.so");
        assert_eq!(absolute(b"./a.so"), here.as_os_str().as_bytes());
    }
}
