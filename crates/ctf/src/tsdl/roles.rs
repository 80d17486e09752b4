//! Types of header fields whose names say what they are for.

use super::Position;
use super::resolver::{Result, wrong};
use crate::metadata::{Field, Role, Scope, Struct, Trace, Type};

/// Refuses fields with the name of a role and a type that cannot have it: packets would be read as
/// if they had no such field.
pub(super) fn check(trace: &Trace) -> Result<()> {
    let of_streams = trace.streams.iter().flat_map(|stream| {
        [(Scope::PacketContext, &stream.packet_context), (Scope::EventHeader, &stream.event_header)]
    });
    for (scope, root) in [(Scope::PacketHeader, &trace.packet_header)].into_iter().chain(of_streams) {
        let fields = root.iter().flat_map(|Struct { fields, .. }| fields);
        fields.filter_map(|field| Some((Role::of_name(scope, &field.name)?, field))).try_for_each(fits)?;
    }
    Ok(())
}

fn fits((role, field): (Role, &Field)) -> Result<()> {
    let unsigned = |ty: &Type| ty.as_integer().filter(|integer| !integer.signed).cloned();
    let (fits, expected) = match (role, &field.ty) {
        (Role::Uuid, Type::Array(array)) => {
            let byte = unsigned(&array.element).filter(|byte| (byte.bits, byte.alignment) == (8, 8));
            (byte.is_some() && array.length == 16, "an array of 16 bytes")
        }
        (Role::Uuid, _) => (false, "an array of 16 bytes"),
        (Role::Magic, ty) => (unsigned(ty).is_some_and(|it| it.bits == 32), "an unsigned integer of 32 bits"),
        (_, ty) => (unsigned(ty).is_some(), "an unsigned integer"),
    };
    match fits {
        true => Ok(()),
        false => {
            let at = Position { line: 1, column: 1 };
            wrong(at, format!("expected {expected} as the header field `{}`, found another type", field.name))
        }
    }
}
