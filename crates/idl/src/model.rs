//! What an accepted file means: definitions with resolved types and computed constants.

use std::rc::Rc;

use crate::source::PresumedLine;

/// A definition of a [`Specification`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(pub(crate) u32);

/// The definition that has all others: the scope outside of every module.
pub const ROOT: DefinitionId = DefinitionId(0);

/// An accepted file and what it includes.
#[derive(Debug)]
pub struct Specification {
    pub(crate) definitions: Vec<Definition>,
}

/// One definition.
#[derive(Debug)]
pub struct Definition {
    pub(crate) name: String,
    pub(crate) parent: DefinitionId,
    pub(crate) repository_id: String,
    pub(crate) position: Option<PresumedLine>,
    pub(crate) is_included: bool,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) children: Vec<DefinitionId>,
    pub(crate) kind: Kind,
}

/// That of an empty file.
impl Default for Specification {
    fn default() -> Self {
        let root = Definition {
            name: String::new(),
            parent: ROOT,
            repository_id: String::new(),
            position: None,
            is_included: false,
            annotations: Vec::new(),
            children: Vec::new(),
            kind: Kind::Module,
        };
        Self { definitions: vec![root] }
    }
}

impl Specification {
    /// A definition by its number.
    pub fn get(&self, id: DefinitionId) -> &Definition {
        &self.definitions[id.0 as usize]
    }

    /// All definitions in the order of the text, without [`ROOT`].
    pub fn all(&self) -> impl Iterator<Item = (DefinitionId, &Definition)> {
        let ids = (0..).map(DefinitionId);
        ids.zip(&self.definitions).filter(|(id, definition)| *id != ROOT && definition.position.is_some())
    }

    /// The name with those of its scopes, outermost first.
    pub fn path(&self, id: DefinitionId) -> Vec<&str> {
        let mut path = Vec::new();
        let mut here = id;
        while here != ROOT {
            path.push(self.get(here).name());
            here = self.get(here).parent;
        }
        path.reverse();
        path
    }

    /// The type behind all aliases of `type_`.
    pub fn resolve<'a>(&'a self, mut type_: &'a Type) -> &'a Type {
        while let Type::Named(id) = type_
            && let Kind::Alias(of) = &self.get(*id).kind
        {
            type_ = of;
        }
        type_
    }
}

impl Definition {
    /// Its name without scopes, and without the underscore that escapes a keyword.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scope that it is in.
    pub fn parent(&self) -> DefinitionId {
        self.parent
    }

    /// Its repository identifier (CORBA 10.7), empty for enumerators.
    pub fn repository_id(&self) -> &str {
        &self.repository_id
    }

    /// Where its name is; `None` for what the standard declares.
    pub fn position(&self) -> Option<&PresumedLine> {
        self.position.as_ref()
    }

    /// Whether it is in an included file.
    pub fn is_included(&self) -> bool {
        self.is_included
    }

    /// The annotations before it.
    pub fn annotations(&self) -> &[Annotation] {
        &self.annotations
    }

    /// What is declared in its scope, in the order of the text.
    pub fn children(&self) -> &[DefinitionId] {
        &self.children
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// `@NAME(PARAMETERS)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The scoped name.
    pub name: String,
    /// The text between the parentheses, one space between tokens; empty if there are none.
    pub parameters: String,
}

/// Kinds of definitions.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A module, all its openings.
    Module,
    /// An interface.
    Interface(Interface),
    /// A value type or an event type.
    Value(Value),
    /// A value type that is a box around another type.
    ValueBox(Type),
    /// A structure.
    Struct(Struct),
    /// An exception.
    Exception(Vec<Member>),
    /// A union.
    Union(Union),
    /// An enumeration: its enumerators.
    Enum(Vec<DefinitionId>),
    /// An enumerator: its enumeration, and its number from 0.
    Enumerator(DefinitionId, u32),
    /// A `typedef`.
    Alias(Type),
    /// A constant.
    Constant(Type, Constant),
    /// An operation of an interface or of a value type.
    Operation(Operation),
    /// An attribute.
    Attribute(Attribute),
    /// A `native` type.
    Native,
    /// A bit set: the width of each field in bits, and its name if it has one.
    Bitset(Vec<(Option<String>, u32)>),
    /// A bit mask: its flags with their positions.
    Bitmask(Vec<(String, u32)>),
    /// A part of the component model (IDL 4.2, 7.4.8 to 7.4.11): what it is called there.
    Component(&'static str),
}

/// A member of a structure, an exception or a value type.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type; an array if it is declared as one.
    pub type_: Type,
    /// The annotations before it.
    pub annotations: Vec<Annotation>,
}

/// A structure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Struct {
    /// The structure that it extends (IDL 4.2, 7.4.13.4.1).
    pub base: Option<DefinitionId>,
    /// Its own members.
    pub members: Vec<Member>,
    /// `false` as long as it is only declared.
    pub is_defined: bool,
}

/// A union.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Union {
    /// The discriminator's type.
    pub discriminator: Option<Type>,
    /// Its arms.
    pub cases: Vec<Case>,
    /// `false` as long as it is only declared.
    pub is_defined: bool,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Values of the discriminator; empty if it is only the default.
    pub labels: Vec<Constant>,
    /// It stands for all values that no other arm has.
    pub is_default: bool,
    /// Its member.
    pub member: Member,
}

/// How an interface is restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Not.
    #[default]
    Unconstrained,
    /// References and values may be passed for it.
    Abstract,
    /// Its objects never leave their process.
    Local,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    /// How it is restricted.
    pub flavour: Flavour,
    /// The interfaces that it names as its bases.
    pub bases: Vec<DefinitionId>,
    /// All interfaces that it inherits from, each once, a base before what inherits from it.
    pub ancestors: Vec<DefinitionId>,
    /// `false` as long as it is only declared.
    pub is_defined: bool,
}

/// A value type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// It has no state.
    pub is_abstract: bool,
    /// It is marshalled by its own code.
    pub is_custom: bool,
    /// It is an event type.
    pub is_event: bool,
    /// Value types that it inherits from.
    pub bases: Vec<DefinitionId>,
    /// Interfaces that it supports.
    pub supports: Vec<DefinitionId>,
    /// Its state, private or public.
    pub members: Vec<Member>,
    /// `false` as long as it is only declared.
    pub is_defined: bool,
}

/// Which way a parameter goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the object.
    In,
    /// From the object.
    Out,
    /// Both.
    InOut,
}

/// A parameter of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Which way it goes.
    pub direction: Direction,
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_: Type,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The caller waits for no answer.
    pub is_oneway: bool,
    /// What it returns; `None` is `void`.
    pub returns: Option<Type>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Exceptions that it may raise.
    pub raises: Vec<DefinitionId>,
    /// Names of the properties of the context that it gets.
    pub context: Vec<String>,
}

/// An attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// It cannot be set.
    pub is_readonly: bool,
    /// Its type.
    pub type_: Type,
    /// Exceptions of reading it.
    pub get_raises: Vec<DefinitionId>,
    /// Exceptions of setting it.
    pub set_raises: Vec<DefinitionId>,
}

/// Types without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `int8`
    Int8,
    /// `uint8`
    UInt8,
    /// `short`
    Short,
    /// `unsigned short`
    UShort,
    /// `long`
    Long,
    /// `unsigned long`
    ULong,
    /// `long long`
    LongLong,
    /// `unsigned long long`
    ULongLong,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `long double`
    LongDouble,
    /// `boolean`
    Boolean,
    /// `char`
    Char,
    /// `wchar`
    WChar,
    /// `octet`
    Octet,
}

/// A type where it is used.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// One without parts.
    Primitive(Primitive),
    /// A string with at most so many characters.
    String(Option<u32>),
    /// A wide string.
    WString(Option<u32>),
    /// Fixed-point numbers: digits and scale. `None` in constants, which have those of their value.
    Fixed(Option<(u32, u32)>),
    /// A sequence with at most so many elements.
    Sequence(Box<Type>, Option<u32>),
    /// An array and its dimensions, outermost first.
    Array(Box<Type>, Vec<u32>),
    /// A map (IDL 4.2, 7.4.13.4.3).
    Map(Box<Type>, Box<Type>, Option<u32>),
    /// `any`
    Any,
    /// `Object`
    Object,
    /// `ValueBase`
    ValueBase,
    /// `CORBA::TypeCode`
    TypeCode,
    /// `CORBA::Principal`, which GIOP 1.0 has.
    Principal,
    /// A definition.
    Named(DefinitionId),
    /// What an error left.
    Unknown,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// An integer or an octet.
    Integer(i128),
    /// A float, a double or a long double.
    Float(f64),
    /// A fixed-point number.
    Fixed(Fixed),
    /// A boolean.
    Boolean(bool),
    /// A character of Latin-1.
    Char(u8),
    /// A wide character, a unit of UTF-16.
    WChar(u16),
    /// A string in Latin-1.
    String(Rc<[u8]>),
    /// A wide string in UTF-16.
    WString(Rc<[u16]>),
    /// An enumerator.
    Enumerator(DefinitionId),
}

/// `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// All digits, with the sign.
    pub unscaled: i128,
    /// Digits behind the point.
    pub scale: u32,
}
