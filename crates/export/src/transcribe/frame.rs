//! Headers and packet context fields of the new trace.
//!
//! ```text
//! packet header   magic u32 │ uuid [16], if the trace has one │ stream_id u64
//!                 │ stream_instance_id u64, if present before
//! packet context  content_size u64 │ packet_size u64
//!                 │ those of timestamp_begin, timestamp_end, packet_seq_num, events_discarded
//!                   that were present, u64 each │ all other fields
//! event header    with a clock: 4 bytes, or 1 + 16, as in `encode`; without one: id u64
//! ```

use tompion_ctf::encode::{COMPACT_BITS, COMPACT_IDS};
use tompion_ctf::metadata::{
    Array, Blob, ByteOrder, Enum, Field, Integer, Length, Mapping, OptionRange, Reference, Role, Roles,
    Scope, Selection, Stream, Struct, Trace, Type, Uuid, Variant, Version,
};

const ORDER: ByteOrder = ByteOrder::Little;

/// Choice of the optional fields in headers and packet contexts.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub version: Version,
    /// Number of the stream class.
    pub id: u64,
    pub uuid: Option<[u8; 16]>,
    /// Whether packets state their stream within the class.
    pub has_instance: bool,
    /// Fields at the beginning of packet contexts, in order.
    pub context: Vec<Role>,
    /// Name of the clock.
    pub clock: Option<String>,
}

/// Optional roles of packet contexts, with their field names in CTF 1.8.
const OPTIONAL: [Role; 4] =
    [Role::TimestampBegin, Role::TimestampEnd, Role::SequenceNumber, Role::EventsDiscarded];

/// Properties of the new trace.
pub(super) struct Plan {
    pub version: Version,
    pub uuid: Option<Uuid>,
    /// Name of the stream's clock.
    pub clock: Option<String>,
}

impl Frame {
    /// Determines the frame of a stream class.
    pub fn new(source: &Trace, stream: &Stream, plan: Plan) -> Self {
        let Plan { version, uuid, clock } = plan;
        let has = |scope, root: Option<&Struct>, role| {
            root.is_some_and(|root| {
                root.fields.iter().any(|field| has_role(source.version, scope, field, role))
            })
        };
        let of_context = |role: &Role| has(Scope::PacketContext, stream.packet_context.as_ref(), *role);
        let needs_clock = |role: &Role| matches!(role, Role::TimestampBegin | Role::TimestampEnd);
        let optional = OPTIONAL.into_iter().filter(of_context);
        let optional = optional.filter(|role| clock.is_some() || !needs_clock(role));
        Self {
            version,
            id: stream.id,
            uuid: uuid.map(|uuid| uuid.0),
            has_instance: has(Scope::PacketHeader, source.packet_header.as_ref(), Role::StreamInstance),
            context: [Role::ContentSize, Role::PacketSize].into_iter().chain(optional).collect(),
            clock,
        }
    }

    /// Returns the packet header, the same for all streams of the trace.
    pub fn packet_header(&self) -> Struct {
        let mut fields = vec![role_field("magic", 32, Role::Magic)];
        if self.uuid.is_some() {
            let bytes = Type::Integer(Integer::unsigned(8, ORDER));
            let ty = match self.version {
                Version::One => Type::Array(Array { element: Box::new(bytes), length: 16, alignment: 1 }),
                Version::Two => Type::Blob(Blob {
                    length: Length::Fixed(16),
                    media_type: None,
                    roles: Roles::NONE.with(Role::Uuid),
                }),
            };
            fields.push(Field::new("uuid", ty));
        }
        fields.push(role_field("stream_id", 64, Role::StreamId));
        if self.has_instance {
            fields.push(role_field("stream_instance_id", 64, Role::StreamInstance));
        }
        self.placed(Struct::new(fields))
    }

    /// Returns the fields at the beginning of the packet context.
    pub fn packet_context(&self) -> Vec<Field> {
        let field = |role: &Role| {
            let name = packet_field(*role).unwrap_or_default();
            let integer = Integer::unsigned(64, ORDER).with_role(*role);
            let is_time = matches!(role, Role::TimestampBegin | Role::TimestampEnd);
            let clock = self.clock.clone().filter(|_| is_time);
            Field::new(name, Type::Integer(Integer { clock, ..integer }))
        };
        self.placed(Struct::new(self.context.iter().map(field).collect())).fields
    }

    /// Returns the event header.
    pub fn event_header(&self) -> Struct {
        let Some(clock) = &self.clock else {
            return self.placed(Struct::new(vec![role_field("id", 64, Role::EventId)]));
        };
        let timestamp = |bits, alignment| {
            let integer = Integer::unsigned(bits, ORDER).with_clock(clock).with_alignment(alignment);
            Field::new("timestamp", Type::Integer(integer))
        };
        let last = i128::from(COMPACT_IDS);
        let label = |label: &str, low, high| Mapping { label: label.into(), low, high };
        let id = Enum {
            integer: Integer::unsigned(5, ORDER).with_role(Role::EventId),
            mappings: vec![label("compact", 0, last - 1), label("extended", last, last)],
        };
        let compact = Struct { fields: vec![timestamp(COMPACT_BITS, 1)], alignment: 1 };
        let extended = Struct::new(vec![role_field("id", 64, Role::EventId), timestamp(64, 8)]);
        let ranges = [(0, last - 1, 0), (last, last, 1)];
        let ranges = ranges.map(|(low, high, option)| OptionRange { low, high, option });
        let mut variant = Variant::of_labels(
            Reference { scope: Scope::EventHeader, path: vec!["id".into()] },
            vec![
                Field::new("compact", Type::Struct(compact)),
                Field::new("extended", Type::Struct(extended)),
            ],
        );
        if self.version == Version::Two {
            variant.selection = Selection::Ranges(ranges.into());
        }
        self.placed(Struct::new(vec![
            Field::new("id", Type::Enum(id)),
            Field::new("v", Type::Variant(variant)),
        ]))
    }

    /// Removes roles for CTF 1.8, which doesn't state them.
    fn placed(&self, mut structure: Struct) -> Struct {
        if self.version == Version::One {
            structure.fields.iter_mut().for_each(|field| without_roles(&mut field.ty));
        }
        structure
    }
}

fn without_roles(ty: &mut Type) {
    match ty {
        Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => integer.roles = Roles::NONE,
        Type::Struct(structure) => structure.fields.iter_mut().for_each(|field| without_roles(&mut field.ty)),
        Type::Variant(variant) => variant.options.iter_mut().for_each(|field| without_roles(&mut field.ty)),
        _ => {}
    }
}

fn role_field(name: &str, bits: u32, role: Role) -> Field {
    Field::new(name, Type::Integer(Integer::unsigned(bits, ORDER).with_role(role)))
}

/// Returns the name that gives a packet context field this role in CTF 1.8.
pub(super) fn packet_field(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::TimestampBegin => "timestamp_begin",
        Role::TimestampEnd => "timestamp_end",
        Role::ContentSize => "content_size",
        Role::PacketSize => "packet_size",
        Role::EventsDiscarded => "events_discarded",
        Role::SequenceNumber => "packet_seq_num",
        _ => return None,
    })
}

/// Whether a field of a packet's structure, or one in it, has a role.
pub(super) fn has_role(version: Version, scope: Scope, field: &Field, role: Role) -> bool {
    if version == Version::One && Role::of_name(scope, &field.name) == Some(role) {
        return true;
    }
    let inside = |fields: &[Field]| fields.iter().any(|field| has_role(version, scope, field, role));
    match &field.ty {
        Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => {
            version == Version::Two && integer.roles.has(role)
        }
        Type::Struct(structure) => inside(&structure.fields),
        Type::Variant(variant) => inside(&variant.options),
        Type::Optional(optional) => {
            has_role(version, scope, &Field::new("", (*optional.element).clone()), role)
        }
        _ => false,
    }
}

/// Whether a field of a packet context is written again as part of the frame.
pub(super) fn is_framed(version: Version, field: &Field) -> bool {
    match version {
        Version::One => Role::of_name(Scope::PacketContext, &field.name).is_some(),
        Version::Two => {
            field.ty.as_integer().is_some_and(|integer| !integer.roles.is_empty() || integer.clock.is_some())
        }
    }
}
