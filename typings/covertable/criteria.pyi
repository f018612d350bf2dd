from types import ModuleType

simple: ModuleType
