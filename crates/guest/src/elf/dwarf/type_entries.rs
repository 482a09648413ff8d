//! Types: structures with their members, enumerations, arrays, pointers and the rest.

use super::{Entry, Loader, Scope, Slice};
use crate::elf::types::{Member, Type, TypeId};
use gimli::constants as dw;
use std::sync::Arc;

impl<'a> Loader<'a, '_> {
    pub(super) fn type_entry(
        &mut self,
        unit: &gimli::Unit<Slice<'a>>,
        offset: usize,
        entry: &Entry<'a>,
    ) -> Result<Scope, gimli::Error> {
        let name = self.name(unit, entry);
        let size = Self::number(entry, dw::DW_AT_byte_size);
        let complete = entry.attr_value(dw::DW_AT_declaration).is_none();
        let word = self.out.types.word() as u64;
        let elsewhere = self.reference(unit, entry, dw::DW_AT_signature);
        let (ty, is_struct) = match entry.tag() {
            // Only declared here: the unit with this signature has it.
            _ if elsewhere.is_some() => {
                let to = elsewhere.map_or(TypeId::VOID, |offset| self.type_id(offset));
                (Type::Qualified { to }, false)
            }
            dw::DW_TAG_base_type => {
                let encoding = Self::number(entry, dw::DW_AT_encoding).unwrap_or(0) as u8;
                let size = size.unwrap_or(0).min(16) as u8;
                let name = name.unwrap_or_else(|| Arc::from("?"));
                let ty = match gimli::DwAte(encoding) {
                    dw::DW_ATE_float | dw::DW_ATE_complex_float => Type::Float { name, size },
                    dw::DW_ATE_signed | dw::DW_ATE_signed_char => Type::Integer { name, size, signed: true },
                    _ => Type::Integer { name, size, signed: false },
                };
                (ty, false)
            }
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => (
                Type::Pointer { to: self.type_of(unit, entry), size: size.unwrap_or(word).min(8) as u8 },
                false,
            ),
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let union = entry.tag() == dw::DW_TAG_union_type;
                let members = Vec::new();
                (Type::Struct { name, size: size.unwrap_or(0), members, union, complete }, true)
            }
            dw::DW_TAG_enumeration_type => {
                let size = size.unwrap_or(4).min(8) as u8;
                (Type::Enum { name, size, enumerators: Vec::new() }, true)
            }
            dw::DW_TAG_array_type => (Type::Array { of: self.type_of(unit, entry), count: None }, true),
            dw::DW_TAG_typedef => {
                let name = name.unwrap_or_else(|| Arc::from("?"));
                (Type::Typedef { name, to: self.type_of(unit, entry) }, false)
            }
            dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type => (Type::Qualified { to: self.type_of(unit, entry) }, false),
            dw::DW_TAG_subroutine_type => (Type::Function { returns: self.type_of(unit, entry) }, false),
            _ => return Ok(Scope::Other),
        };
        let id = self.type_id(offset);
        let scope = match (&ty, is_struct) {
            (Type::Struct { .. }, _) => Scope::Struct(id),
            (Type::Enum { .. }, _) => Scope::Enum(id),
            (Type::Array { .. }, _) => Scope::Array(id),
            _ => Scope::Other,
        };
        self.out.types.set(id, ty);
        Ok(scope)
    }

    /// A number, or in DWARF 2 an expression that adds it to the address of the whole.
    fn member_offset(unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Option<u64> {
        let value = entry.attr_value(dw::DW_AT_data_member_location)?;
        let Some(expression) = value.exprloc_value() else { return value.udata_value() };
        match expression.operations(unit.encoding()).next().ok()?? {
            gimli::Operation::PlusConstant { value } => Some(value),
            _ => None,
        }
    }

    pub(super) fn member(&mut self, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Member {
        let mut offset = Self::member_offset(unit, entry).unwrap_or(0);
        let mut bits = None;
        if let Some(width) = Self::number(entry, dw::DW_AT_bit_size) {
            let width = width.clamp(1, 64) as u8;
            let first = match Self::number(entry, dw::DW_AT_data_bit_offset) {
                Some(first) => first,
                // DWARF 2 and 3 count from the most significant bit of a storage unit.
                None => {
                    let unit_bits = 8 * Self::number(entry, dw::DW_AT_byte_size).unwrap_or(4).min(8);
                    let from_top = Self::number(entry, dw::DW_AT_bit_offset).unwrap_or(0);
                    (8 * offset.min(1 << 40) + unit_bits).saturating_sub(from_top + u64::from(width))
                }
            };
            offset = first / 8;
            bits = Some(((first % 8) as u8, width));
        }
        Member { name: self.name(unit, entry), offset, ty: self.type_of(unit, entry), bits }
    }
}
