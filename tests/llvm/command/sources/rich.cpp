// What C++ adds: virtual calls, exceptions, static initialisation, COMDATs, thread-local objects.
struct Shape {
  virtual ~Shape() {}
  virtual double area() const = 0;
  int id = 0;
};
struct Square final : Shape {
  double side;
  explicit Square(double s) : side(s) {}
  double area() const override { return side * side; }
};
struct Circle : Shape {
  double radius;
  explicit Circle(double r) : radius(r) {}
  double area() const override { return 3.14159 * radius * radius; }
};
int external(int);

template <class T> struct List {
  T *items;
  int size = 0;
  explicit List(int n) : items(new T[n]()), size(n) {}
  ~List() { delete[] items; }
  T &at(int i) {
    if (i < 0 || i >= size) throw i;
    return items[i];
  }
};

static List<int> table(external(7));
thread_local List<int> per_thread(external(3));

int lookup(int i) {
  static int calls = external(1);
  return table.at(i) + calls++;
}

double total(Shape **shapes, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += shapes[i]->area();
  return sum;
}

int guarded(int i) {
  List<double> held(4);
  try {
    return lookup(i) + int(held.at(i));
  } catch (int found) {
    return -found;
  }
}

Shape *make(int kind) { return kind ? static_cast<Shape *>(new Square(kind)) : new Circle(1); }
bool is_square(Shape *shape) { return dynamic_cast<Square *>(shape) != nullptr; }
int next() { return ++per_thread.at(0); }
