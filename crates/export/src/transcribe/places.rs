//! Locates fields that others refer to in the source trace, and expresses the reference in the new
//! one.

use super::frame::is_framed;
use super::model::{Inexpressible, Translator};
use tompion_ctf::metadata::{Field, Reference, Scope, Struct, Type, Variant, Version};

/// Option name of a converted optional field that is present.
pub(super) const SOME: &str = "some";
/// Option name of a converted optional field that is absent.
pub(super) const NONE: &str = "none";
/// Name of a tag next to which only its value exists.
pub(super) const TAG: &str = "tag";
/// Name of that value.
pub(super) const VALUE: &str = "value";

/// Path in the new trace, if it is wanted.
type Found<'a> = Option<&'a mut Vec<String>>;

/// Appends a name to the path.
fn pass(found: &mut Found<'_>, name: impl FnOnce() -> Option<String>) -> Option<()> {
    if let Some(found) = found {
        found.push(name()?);
    }
    Some(())
}

/// Appends a name to the path, if the member exists.
fn pass_if(found: &mut Found<'_>, is_there: impl FnOnce() -> bool, name: &str) {
    if let Some(found) = found.as_mut().filter(|_| is_there()) {
        found.push(name.into());
    }
}

impl<'s> Translator<'s> {
    fn source_root(&self, scope: Scope) -> Option<&'s Struct> {
        match scope {
            Scope::PacketHeader | Scope::EventHeader => None,
            Scope::PacketContext => self.stream.packet_context.as_ref(),
            Scope::StreamEventContext => self.stream.event_context.as_ref(),
            Scope::EventContext => self.event?.context.as_ref(),
            Scope::Payload => self.event?.payload.as_ref(),
        }
    }

    /// Returns the location in the new trace of a field at a location of the source.
    pub fn find(&self, reference: &Reference) -> Result<Reference, Inexpressible> {
        let mut path = Vec::new();
        self.locate(reference, Some(&mut path))?;
        Ok(Reference { scope: reference.scope, path })
    }

    /// Returns the type of a field in the source trace.
    pub fn find_type(&self, reference: &Reference) -> Result<&'s Type, Inexpressible> {
        self.locate(reference, None)
    }

    fn locate(&self, reference: &Reference, found: Found<'_>) -> Result<&'s Type, Inexpressible> {
        let Some(root) = self.source_root(reference.scope) else {
            return self.wrong("refers to a header, which the new trace replaces");
        };
        let first = reference.path.first();
        let is_framed = |field: &Field| Some(&field.name) == first && is_framed(self.from, field);
        if reference.scope == Scope::PacketContext && root.fields.iter().any(is_framed) {
            return self.wrong("refers to a packet property, which the new trace stores differently");
        }
        match self.follow_struct(root, reference.scope, &reference.path, found) {
            Some(ty) => Ok(ty),
            None => self.wrong(&format!("refers to {:?}, which is ambiguous", reference.path.join("."))),
        }
    }

    fn follow_struct(
        &self,
        structure: &'s Struct,
        scope: Scope,
        path: &[String],
        mut found: Found<'_>,
    ) -> Option<&'s Type> {
        let (name, rest) = path.split_first()?;
        let index = structure.fields.iter().position(|field| field.name == *name)?;
        pass(&mut found, || Some(self.names(structure, scope).get(index)?.name.clone()))?;
        self.follow(&structure.fields.get(index)?.ty, scope, rest, found)
    }

    fn follow(&self, ty: &'s Type, scope: Scope, path: &[String], mut found: Found<'_>) -> Option<&'s Type> {
        match ty {
            Type::Struct(structure) => self.follow_struct(structure, scope, path, found),
            Type::Array(array) => self.follow_element(&array.element, scope, path, found),
            Type::Sequence(sequence) => self.follow_element(&sequence.element, scope, path, found),
            Type::Optional(optional) => {
                if self.to == Version::One {
                    pass(&mut found, || Some(SOME.into()))?;
                }
                self.follow_element(&optional.element, scope, path, found)
            }
            Type::Variant(variant) => self.follow_variant(variant, scope, path, found),
            _ => path.is_empty().then_some(ty),
        }
    }

    fn follow_element(
        &self,
        element: &'s Type,
        scope: Scope,
        path: &[String],
        mut found: Found<'_>,
    ) -> Option<&'s Type> {
        pass_if(&mut found, || self.needs_tag(element), VALUE);
        self.follow(element, scope, path, found)
    }

    /// Follows a path into a variant: into the named option. Without a name, into the option that
    /// encloses the reference, or into the only one.
    fn follow_variant(
        &self,
        variant: &'s Variant,
        scope: Scope,
        path: &[String],
        mut found: Found<'_>,
    ) -> Option<&'s Type> {
        let (index, rest) = match self.from {
            Version::One => {
                let (name, rest) = path.split_first()?;
                (variant.options.iter().position(|option| option.name == *name)?, rest)
            }
            Version::Two => {
                let around = self.options.iter().find(|(around, _)| std::ptr::eq(*around, variant));
                let index = around.map(|(_, index)| *index).or_else(|| {
                    // Any option will do where options need no names.
                    let is_there = |option: &Field| self.follow(&option.ty, scope, path, None).is_some();
                    let mut there = (0..).zip(&variant.options).filter(|(_, option)| is_there(option));
                    let first = there.next()?.0;
                    (self.to == Version::Two || there.next().is_none()).then_some(first)
                });
                (index?, path)
            }
        };
        let option = variant.options.get(index)?;
        if self.to == Version::One {
            pass(&mut found, || self.option_name(variant, index))?;
        }
        self.follow_element(&option.ty, scope, rest, found)
    }
}
