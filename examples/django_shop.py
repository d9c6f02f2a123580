"""Django: a view stores an order and its message in one transaction; a `def` handler uses the ORM.

A whole project in one file, for the example's sake. In yours, `jobs` and the handlers stand in a module of an app, and
the worker is a process of its own: `DJANGO_SETTINGS_MODULE=shop.settings holdfast worker shop.jobs:jobs`, where
shop/jobs.py begins with `django.setup()`. Django's connections are closed around each call of a handler, as around a
request (CONN_MAX_AGE and CONN_HEALTH_CHECKS hold).
Run it: python django_shop.py
"""

import asyncio

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django_shop.db"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

from holdfast import Holdfast  # noqa: E402

jobs = Holdfast("sqlite:///django_shop.db", require_on=True)


class Order(models.Model):
    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="placed")

    class Meta:
        app_label = "shop"


def place(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        jobs.publish("order.placed", {"id": order.pk}, on=connection)
    return JsonResponse({"id": order.pk}, status=202)


urlpatterns = [path("orders", place)]


@jobs.handler("order.placed", name="ship_order")
def ship(order: dict) -> None:
    Order.objects.filter(pk=order["id"]).update(state="shipped")


def main() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    client = Client()
    answers = [client.post("/orders", {"item": item}) for item in ("book", "lamp")]
    print("placed:", [answer.json() for answer in answers])
    asyncio.run(jobs.worker(until_idle=True).run())
    found = {order.item: order.state for order in Order.objects.all()}
    print("now:", found)
    assert [answer.status_code for answer in answers] == [202, 202]
    assert found == {"book": "shipped", "lamp": "shipped"}


if __name__ == "__main__":
    main()
