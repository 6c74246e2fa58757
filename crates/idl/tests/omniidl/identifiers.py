"""A back end of omniidl that prints the repository identifiers of a file."""

from omniidl import idlast, idlvisitor


class Printer(idlvisitor.AstVisitor):
    def visitAST(self, node):
        for declaration in node.declarations():
            if declaration.mainFile():
                declaration.accept(self)

    def visitModule(self, node):
        for definition in node.definitions():
            definition.accept(self)

    def _scope(self, node):
        print(node.repoId())
        for content in node.contents():
            content.accept(self)

    visitInterface = visitValue = visitValueAbs = _scope

    def visitStruct(self, node):
        print(node.repoId())
        for member in node.members():
            if member.constrType():
                member.memberType().decl().accept(self)

    def visitException(self, node):
        print(node.repoId())

    def visitUnion(self, node):
        print(node.repoId())
        if node.constrType():
            node.switchType().decl().accept(self)
        for case in node.cases():
            if case.constrType():
                case.caseType().decl().accept(self)

    def visitTypedef(self, node):
        if node.constrType():
            node.aliasType().decl().accept(self)
        self._declarators(node)

    def _declarators(self, node):
        for declarator in node.declarators():
            print(declarator.repoId())

    visitAttribute = _declarators

    def _plain(self, node):
        print(node.repoId())

    visitEnum = visitConst = visitOperation = visitValueBox = visitNative = visitFactory = _plain


def run(tree, args):
    tree.accept(Printer())
